#!/usr/bin/env python3
"""`gpurun login` and the default servers: one command takes a token, checks it, pins the server's
key and makes the server the default. A refused login leaves nothing behind."""
import os
import pty
import select
import shutil
import stat
import subprocess
import sys
import tempfile
import termios
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../support"))
import world  # noqa: E402
from world import environment, until  # noqa: E402
from world.relay import Relay  # noqa: E402


class Login(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.config = os.path.join(self.folder, "gpurun")
        self.env = environment(XDG_CONFIG_HOME=self.folder, XDG_RUNTIME_DIR=self.folder, GPURUN_SERVERS=None)

    def serve(self, *words):
        server = world.Gpurund(*words)
        self.addCleanup(server.__exit__)
        return server

    def token(self, server, *words):
        done = subprocess.run(
            [world.GPUCTL, "token", "create", "anna", "--tokens", server.tokens_file, *words],
            env=environment(), capture_output=True, text=True, timeout=world.SECONDS, check=True)
        self.assertNotIn("no gpurund", done.stderr)
        return done.stdout

    def run_program(self, program, *words, text="", env=None):
        return subprocess.run([program, *words], env=env or self.env, input=text, capture_output=True,
                              text=True, timeout=world.SECONDS)

    def log_in(self, server, token, *words):
        return self.run_program(world.GPURUN, "login", getattr(server, "address", server), *words, text=token)

    def kept(self):
        """The files with content, by their names in the folder."""
        found = {}
        for place, _, names in os.walk(self.config):
            for name in names:
                path = os.path.join(place, name)
                with open(path, encoding="utf-8") as file:
                    content = file.read()
                if content:
                    found[os.path.relpath(path, self.config)] = content
                    self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o600, path)
        return found

    def key(self, server):
        with open(server.tokens_file + ".fingerprint", encoding="utf-8") as file:
            return file.read().strip()

    def test_login_makes_options_unnecessary(self):
        server = self.serve()
        token = self.token(server)
        done = self.log_in(server, token)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn(f"{server.address} accepts the token (it has 1 GPU)", done.stdout)
        self.assertEqual(self.kept(), {f"tokens/{server.address}": token, "servers": server.address + "\n"})
        done = self.run_program(world.GPURUN, "--", world.ARGS.client, "once")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        listed = self.run_program(world.GPUCTL, "list")
        self.assertIn(server.address, listed.stdout)
        # A private server of this machine remains available.
        server.process.kill()
        server.process.wait(world.SECONDS)
        done = self.run_program(world.GPURUN, "--", "true")
        self.assertEqual(done.returncode, 125)
        self.assertRegex(done.stderr, rf"no server at {server.address}: .*\? The servers are those of "
                                      rf"{self.config}/servers, and -l none")
        for words in (["-l", "none"], ["--device", "emulated"]):
            done = self.run_program(world.GPURUN, *words, "--", world.ARGS.client, "once")
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_refused_token_leaves_no_files(self):
        server, other = self.serve(), self.serve()
        done = self.log_in(server, self.token(other))
        self.assertEqual((done.returncode, done.stdout), (125, ""))
        self.assertRegex(done.stderr, r"^gpurun: server .*does not know token .*\(the token of stdin\)\n$")
        done = self.log_in(server, "no token")
        self.assertEqual((done.returncode, done.stdout), (125, ""))
        self.assertRegex(done.stderr, "^gpurun: stdin: ")
        self.assertEqual(self.kept(), {})

    def test_login_confirms_and_pins_key(self):
        server = self.serve("--tls")
        token, key = self.token(server), self.key(server)
        done = self.log_in(server, token, "--tls")
        self.assertEqual(done.returncode, 125)
        self.assertRegex(done.stderr, f"shows the key {key}, and there is no terminal.*--fingerprint {key}")
        done = self.log_in(server, token, "--tls", "--fingerprint", "sha256:" + "0" * 64)
        self.assertRegex(done.stderr, "not the one of --fingerprint")
        self.assertEqual(self.kept(), {})
        done = self.log_in(server, token, "--tls", "--fingerprint", key)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(self.kept()["known_servers"], f"{server.address} {key} pinned\n")
        done = self.run_program(world.GPURUN, "--tls", "--", world.ARGS.client, "once")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        # A known key causes no question. Another key is an error.
        self.assertEqual(self.log_in(server, token, "--tls").returncode, 0)
        known = os.path.join(self.config, "known_servers")
        with open(known, "w", encoding="utf-8") as file:
            file.write(f"{server.address} sha256:{'0' * 64}\n")
        done = self.log_in(server, token, "--tls", "--fingerprint", key)
        self.assertEqual(done.returncode, 125)
        self.assertIn("another key than it did before", done.stderr)

    def test_pinned_key_requires_tls(self):
        """Also within this machine, as behind `ssh -L`, and without an option from the user."""
        server, plain = self.serve("--tls"), self.serve()
        with Relay(server.port()) as relay:
            token = self.token(server)
            done = self.log_in(relay, token, "--fingerprint", self.key(server))
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            pin = os.path.join(self.config, "known_servers:1")
            for program, words in ((world.GPURUN, ("--", world.ARGS.client, "once")), (world.GPUCTL, ("list",))):
                before = len(relay.heard)
                done = self.run_program(program, *words)
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                until(relay.quiet, "the relay has all that the program sent")
                heard = relay.heard[before:]
                self.assertTrue(heard)
                self.assertEqual([said[:8] for said in heard if not said.startswith(b"\x16\x03")], [])
                for plaintext, changes in ((("--insecure-plaintext",), {}), ((), {"GPURUN_INSECURE_PLAINTEXT": "1"})):
                    words_too = (*plaintext, *words) if program == world.GPURUN else (*words, *plaintext)
                    done = self.run_program(program, *words_too, env={**self.env, **changes})
                    self.assertEqual((done.returncode, done.stdout), (125, ""), done.stderr)
                    self.assertIn(f"is pinned in {pin}", done.stderr)
            done = self.run_program(world.GPURUN, "login", relay.address, "--insecure-plaintext", text=token)
            self.assertEqual(done.returncode, 125)
            self.assertIn(f"is pinned in {pin}", done.stderr)
            # Another server behind the same address gets no token, with TLS or without.
            relay.target = ("127.0.0.1", plain.port())
            for words in (("--", "true"), ("login", relay.address)):
                done = self.run_program(world.GPURUN, *words, text=token)
                self.assertEqual(done.returncode, 125)
                self.assertIn(f"{pin} pins its key: remove that line", done.stderr)
            other = self.serve("--tls")
            relay.target = ("127.0.0.1", other.port())
            done = self.run_program(world.GPURUN, "--", "true")
            self.assertEqual(done.returncode, 125)
            self.assertIn("shows another key than it did before", done.stderr)
            self.assertIn(pin, done.stderr)
            # A private server may get a port that another server had, because gpurun trusts its own
            # child.
            done = self.run_program(world.GPURUN, "--device", "emulated", "--", world.ARGS.client, "once")
            self.assertEqual(done.returncode, 0, done.stderr)
            # Without the line any server may use the address again.
            os.remove(os.path.join(self.config, "known_servers"))
            relay.target = ("127.0.0.1", plain.port())
            done = self.log_in(relay, self.token(plain))
            self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_only_confirmed_key_is_pinned(self):
        """A key that was only recorded at the first contact does not bind the next server of this
        machine at that port."""
        server, plain = self.serve("--tls"), self.serve()
        with Relay(server.port()) as relay:
            done = self.run_program(world.GPURUN, "--tls", "--secret-file", server.secret_file, "-l", relay.address,
                                    "--", "true")
            self.assertEqual(done.returncode, 0, done.stderr)
            line = f"{relay.address} {self.key(server)}"
            self.assertEqual(self.kept(), {"known_servers": line + "\n"})
            relay.target = ("127.0.0.1", plain.port())
            done = self.run_program(world.GPURUN, "--secret-file", plain.secret_file, "-l", relay.address, "--",
                                    world.ARGS.client, "once")
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            # login pins the existing line, and changes no other.
            with open(os.path.join(self.config, "known_servers"), "a", encoding="utf-8") as file:
                file.write("# ours\nother:1 sha256:" + "0" * 64)
            relay.target = ("127.0.0.1", server.port())
            done = self.log_in(relay, self.token(server), "--tls")
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertEqual(self.kept()["known_servers"],
                             line + " pinned\n# ours\nother:1 sha256:" + "0" * 64 + "\n")
            self.assertEqual([name for name in os.listdir(self.config) if ".new" in name], [])

    @unittest.skipIf(shutil.which("openssl") is None, "there is no openssl command")
    def test_login_pins_key_verified_by_authority(self):
        certificate, key = (os.path.join(self.folder, name) for name in ("certificate", "key"))
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                        "-keyout", key, "-out", certificate, "-subj", "/CN=here", "-days", "2",
                        "-addext", "subjectAltName=IP:127.0.0.1"],
                       check=True, capture_output=True, timeout=world.SECONDS)
        os.chmod(key, 0o600)
        server = self.serve("--tls", "--tls-certificate", certificate, "--tls-key", key)
        with Relay(server.port()) as relay:
            done = self.log_in(relay, self.token(server), "--tls-ca", certificate)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertEqual(self.kept()["known_servers"], f"{relay.address} {self.key(server)} pinned\n")
            done = self.run_program(world.GPURUN, "--tls", "-l", relay.address, "--", world.ARGS.client, "once")
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            relay.target = ("127.0.0.1", self.serve("--tls").port())
            done = self.run_program(world.GPURUN, "--tls", "-l", relay.address, "--", "true")
            self.assertEqual(done.returncode, 125)
            self.assertIn("shows another key than it did before", done.stderr)

    def test_token_with_fingerprint_skips_confirmation(self):
        server = self.serve("--tls")
        key = self.key(server)
        token = self.token(server, "--server-fingerprint", key)
        done = self.log_in(server, token, "--tls")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(self.kept()["known_servers"], f"{server.address} {key} pinned\n")
        other = self.serve("--tls")
        done = self.log_in(other, token, "--tls")
        self.assertEqual((done.returncode, done.stdout), (125, ""))
        self.assertIn("the token is for another server", done.stderr)

    def test_token_with_other_fingerprint_is_refused(self):
        server = self.serve("--tls")
        token = self.token(server, "--server-fingerprint", "sha256:" + "1" * 64)
        done = self.log_in(server, token, "--tls", "--fingerprint", self.key(server))
        self.assertEqual(done.returncode, 125)
        self.assertIn("the token is for another server", done.stderr)

    def on_a_terminal(self, words, answers):
        """The terminal's output. Each answer follows its question. The program leaves the terminal's
        settings as they were."""
        pid, terminal = pty.fork()
        if pid == 0:
            os.read(0, 1)  # Until the settings are known.
            os.execve(world.GPURUN, [world.GPURUN, *words], self.env)
        settings = termios.tcgetattr(terminal)
        os.write(terminal, b"\n")
        seen = b""
        answers = list(answers)
        while True:
            self.assertTrue(select.select([terminal], [], [], world.SECONDS)[0], seen)
            try:
                got = os.read(terminal, 4096)
            except OSError:
                break
            if not got:
                break
            seen += got
            if answers and answers[0][0] in seen:
                os.write(terminal, answers.pop(0)[1])
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        self.assertEqual(termios.tcgetattr(terminal), settings)
        os.close(terminal)
        return status, seen.decode()

    def test_terminal_login_prompts_and_hides_token(self):
        server = self.serve("--tls")
        token, key = self.token(server), self.key(server)
        words = ("login", server.address, "--tls")
        status, seen = self.on_a_terminal(words, [(b"[yes/no]", b"no\n")])
        self.assertEqual(status, 125)
        self.assertIn("nothing is stored", seen)
        self.assertEqual(self.kept(), {})
        status, seen = self.on_a_terminal(words, [(b"[yes/no]", b"yes\n"), (b"Token for", token.encode())])
        self.assertEqual(status, 0, seen.replace(token.strip(), "TOKEN"))
        self.assertIn(f"shows the key {key}", seen)
        self.assertNotIn(token.split("_")[2], seen)
        self.assertEqual(self.kept()[f"tokens/{server.address}"], token)

    def test_ctrl_c_at_prompt_restores_terminal_and_stores_nothing(self):
        server = self.serve()
        status, seen = self.on_a_terminal(("login", server.address), [(b"Token for", b"\x03")])
        self.assertEqual(status, -2, seen)
        self.assertEqual(self.kept(), {})

    def test_login_refuses_wrong_arguments(self):
        for words, said in (((), "server is required"), (("gpurun1_" + "0" * 90,), "a token is in the place of"), (("a", "gpurun1_" + "0" * 90), "gpurun1_.hidden"), (("a", "b"), "login: "), (("::1",), "in brackets"),
                            (("a", "--fingreprint", "x"), "did you mean --fingerprint"),
                            (("a", "--fingerprint", "x"), "fingerprint: ")):
            done = self.run_program(world.GPURUN, "login", *words)
            self.assertEqual((done.returncode, done.stdout), (125, ""), words)
            self.assertRegex(done.stderr, f"^gpurun: [^\n]*{said}")
        for words in (("-q",), ("--tls", "--timeout", "3s"), ("-l", "127.0.0.1:1")):
            done = self.run_program(world.GPURUN, *words, "login", "127.0.0.1:1")
            self.assertEqual((done.returncode, done.stdout), (125, ""), words)
            self.assertRegex(done.stderr, r"^gpurun: login comes before its options: [^\n]* gpurun -- login\n$")
        self.assertIn("HOST[:PORT]", self.run_program(world.GPURUN, "login", "--help").stdout)

    def test_broken_servers_file_is_reported_with_line(self):
        os.makedirs(self.config)
        path = os.path.join(self.config, "servers")
        with open(path, "w", encoding="utf-8") as file:
            file.write("# ours\n127.0.0.1:1x\n")
        for program, words in ((world.GPURUN, ("--", "true")), (world.GPUCTL, ("list",)),
                               (world.GPURUN, ("login", "127.0.0.1:1"))):
            done = self.run_program(program, *words)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(f"{path}:2: '127.0.0.1:1x': the port is a number", done.stderr)
        # The file is ignored when another place overrides it.
        done = self.run_program(world.GPURUN, "--", "true", env={**self.env, "GPURUN_SERVERS": "none"})
        self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    world.main()
