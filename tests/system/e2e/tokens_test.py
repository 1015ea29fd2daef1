#!/usr/bin/env python3
"""Users' tokens from end to end. An operator makes and revokes them on the server. A user runs
programs with them without any option. A revoked token ends its runs when it should. A token never
appears where others could see it."""
import json
import os
import pwd
import re
import socket
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../support"))
import world  # noqa: E402
from world import environment, until  # noqa: E402

DEVICE_UNAVAILABLE = 46  # CUDA_ERROR_DEVICE_UNAVAILABLE
TOKEN = re.compile(r"gpurun1_([0-9a-f]{12})_[0-9a-f]{64}_[0-9a-f]{8}\n")


class UserTokens(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.config = os.path.join(self.folder, "config", "gpurun")
        os.makedirs(os.path.join(self.config, "tokens"), mode=0o700)
        # The environment of a user without the secret of a server's run.
        self.env = environment(XDG_CONFIG_HOME=os.path.dirname(self.config), XDG_RUNTIME_DIR=self.folder)

    def operate(self, server, *words, status=0):
        done = subprocess.run([world.GPUCTL, "token", *words, "--tokens", server.tokens_file],
                              env=environment(), capture_output=True, text=True,
                              timeout=world.SECONDS, stdin=subprocess.DEVNULL)
        self.assertEqual(done.returncode, status, done.stderr)
        return done

    def make(self, server, user, *words):
        """A token's id, and its line."""
        line = self.operate(server, "create", user, *words).stdout
        found = TOKEN.fullmatch(line)
        self.assertIsNotNone(found, "no token, or more than one")
        return found[1], line

    def keep(self, line, name="token", mode=0o600):
        path = os.path.join(self.config, name)
        if os.path.exists(path):
            os.unlink(path)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT, mode), "w", encoding="utf-8") as file:
            file.write(line)
        return path

    def run_as_user(self, server, *words, env=None, before=()):
        return subprocess.run([world.GPURUN, *before, "-l", server.address, "--",
                               *(words or (world.ARGS.client, "once"))], env=env or self.env,
                              capture_output=True, text=True, timeout=world.SECONDS,
                              stdin=subprocess.DEVNULL)

    def start(self, server):
        """A program of the user that holds a context until its input ends."""
        run = subprocess.Popen([world.GPURUN, "-l", server.address, "--", world.ARGS.client, "wait"],
                               env=self.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
        self.assertEqual(run.stdout.readline(), "ready\n")
        return run

    def test_user_needs_no_option_with_stored_token(self):
        with world.Gpurund() as server:
            refused = self.run_as_user(server)
            self.assertEqual(refused.returncode, 125)
            self.assertIn("wants a token, and none was found", refused.stderr)
            name, line = self.make(server, "anna", "--note", "her laptop", "--expires", "2w")
            self.keep(line)
            done = self.run_as_user(server)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            # A token for this server overrides the one for all servers. An option overrides both.
            _, wrong = self.make(server, "anna")
            self.operate(server, "revoke", wrong.split("_")[1])
            own = self.keep(wrong, f"tokens/{server.address}")
            self.assertRegex(self.run_as_user(server).stderr, rf"was revoked on .*\(the token of {own}\)")
            named = ("--token-file", self.keep(line, "elsewhere"))
            self.assertEqual(self.run_as_user(server, before=named).returncode, 0)
            os.unlink(own)
            run = self.start(server)
            listing = subprocess.run([world.GPUCTL, "list", "--json", "-l", server.address],
                                     env=self.env, capture_output=True, text=True, timeout=world.SECONDS)
            self.assertEqual(json.loads(listing.stdout)["gpus"][0]["lease"]["user"], "anna", listing.stderr)
            run.communicate(timeout=world.SECONDS)
            # Each user's images are in their own folder.
            self.assertEqual(os.listdir(os.path.join(server.folder.name, "cache", "images", "users")),
                             ["anna"])
            with open(server.audit_file, encoding="utf-8") as file:
                self.assertRegex(file.read(), rf'lease.granted user=anna token={name} from="tcp ')

    def test_list_shows_tokens_without_secrets(self):
        with world.Gpurund() as server:
            anna, line = self.make(server, "anna", "--note", "her laptop")
            ben, other = self.make(server, "ben@example.org", "--expires", "1h")
            self.keep(line)
            self.assertEqual(self.run_as_user(server).returncode, 0)
            self.operate(server, "revoke", ben)
            server.process.terminate()
            self.assertEqual(server.process.wait(world.SECONDS), 0)
            table = self.operate(server, "list").stdout
            self.assertRegex(table, rf"(?m)^{anna}  anna +valid +\S+ \S+ UTC +never +2\S+ \S+ UTC +her laptop$")
            self.assertRegex(table, rf"(?m)^{ben}  ben@example.org +revoked ")
            told = [json.loads(each) for each in self.operate(server, "list", "--json").stdout.splitlines()]
            self.assertEqual([(each["user"], each["state"]) for each in told],
                             [("anna", "valid"), ("ben@example.org", "revoked")])
            self.assertGreaterEqual(told[0]["used"], told[0]["made"])
            with open(server.tokens_file, encoding="utf-8") as file:
                shown = table + file.read() + json.dumps(told)
            for secret in (line.split("_")[2], other.split("_")[2]):
                self.assertNotIn(secret, shown)
            self.assertEqual(os.stat(server.tokens_file).st_mode & 0o7777, 0o600)

    def test_audit_log_names_creator_and_revoker_of_token(self):
        with open("/proc/self/loginuid", encoding="ascii") as file:
            login = int(file.read())
        if login != 2 ** 32 - 1:
            self.skipTest("who has logged in counts, not SUDO_UID")
        somebody = pwd.getpwnam("daemon")
        with world.Gpurund() as server:
            name, _ = self.make(server, "anna")
            def audited():
                with open(server.audit_file, encoding="utf-8") as file:
                    return file.read()
            own = pwd.getpwuid(os.getuid()).pw_name
            until(lambda: f" token.made user=anna token={name} by={own}\n" in audited(), "it is told")
            revoked = subprocess.run(
                [world.GPUCTL, "token", "revoke", name, "--tokens", server.tokens_file],
                env=environment(SUDO_UID=str(somebody.pw_uid)), capture_output=True, text=True,
                timeout=world.SECONDS)
            self.assertEqual(revoked.returncode, 0, revoked.stderr)
            who = somebody.pw_name if os.geteuid() == 0 else own
            until(lambda: f" token.revoked user=anna token={name} by={who} leases=end\n" in audited(),
                  "it is told")
            told = json.loads(self.operate(server, "list", "--json").stdout)
            self.assertEqual((told["by"], told["ended_by"]), (own, who))

    def test_revoke_ends_runs_without_keep_running_option(self):
        with world.Gpurund() as server:
            name, line = self.make(server, "anna")
            self.keep(line)
            run = self.start(server)
            said = self.operate(server, "revoke", "--user", "anna", "--keep-running").stdout
            self.assertEqual(said, f"token {name} of user anna is revoked; what runs goes on\n")
            refused = self.run_as_user(server)
            self.assertEqual(refused.returncode, 125)
            self.assertIn(f"token {name} of user anna was revoked", refused.stderr)
            self.assertEqual(run.communicate("\n", timeout=world.SECONDS), ("", ""))
            self.assertEqual(run.returncode, 0)

            # What was spared ends when the user's tokens are revoked again.
            name, line = self.make(server, "anna")
            self.keep(line)
            run = self.start(server)
            self.operate(server, "revoke", "--user", "anna", "--keep-running")
            said = self.operate(server, "revoke", "--user", "anna").stdout
            self.assertIn(f"token {name} of user anna is revoked; what runs ends\n", said)
            until(lambda: not server.workers(), "the worker ends")
            run.communicate("\n", timeout=world.SECONDS)
            self.assertEqual(run.returncode, DEVICE_UNAVAILABLE)

            name, line = self.make(server, "anna")
            self.keep(line)
            run = self.start(server)
            self.operate(server, "revoke", name)
            until(lambda: not server.workers(), "the worker ends")
            _, errors = run.communicate("\n", timeout=world.SECONDS)
            self.assertEqual(run.returncode, DEVICE_UNAVAILABLE)
            # One message, from the process that lost its GPU.
            self.assertRegex(errors, rf"^gpurun: error: {server.address}: token {name} of user anna was "
                             r"revoked; the last call was \w+ \(number \d+\)\. Every CUDA call fails "
                             r"from now on with CUDA_ERROR_DEVICE_UNAVAILABLE\.\n$")
            # The GPU is free for others.
            self.assertEqual(world.holdings(server)["leases"], 0)
        self.assertNotIn("worker ended", server.errors)

    def test_tokens_can_change_while_server_is_stopped(self):
        with world.Gpurund() as server:
            address, tokens = server.address, server.tokens_file
            server.process.terminate()
            server.process.wait(world.SECONDS)
            first, line = self.make(server, "anna")
            second, other = self.make(server, "anna")
            self.operate(server, "revoke", second)
            with world.Gpurund("--tokens", tokens, "--listen", address) as again:
                self.keep(line)
                self.assertEqual(self.run_as_user(again).returncode, 0)
                self.keep(other)
                self.assertIn(f"token {second} of user anna was revoked", self.run_as_user(again).stderr)
        self.assertNotEqual(first, second)

    def test_refusal_names_exceeded_bound(self):
        config = os.path.join(self.folder, "gpurund.toml")
        with open(config, "w", encoding="utf-8") as file:
            file.write("[every-user]\nmax-leases = 5\n[user.anna]\nmax-gpus = 0\n")
        words = ["--tokens", os.path.join(self.folder, "tokens"), "--audit", "none"]
        if not world.can_lend_users():
            words += ["--worker-uids", "none"]
        with world.Gpurund("--config", config, *words) as server:
            server.tokens_file = words[1]
            self.keep(self.make(server, "anna")[1])
            refused = self.run_as_user(server)
            self.assertEqual(refused.returncode, 125)
            self.assertIn("user anna has 0 GPUs and wants 1; this server allows 0 (max-gpus)", refused.stderr)
            self.keep(self.make(server, "ben")[1])
            self.assertEqual(self.run_as_user(server).returncode, 0)

    def test_token_file_must_be_private_and_token_is_never_shown(self):
        with world.Gpurund() as server:
            _, line = self.make(server, "anna")
            path = self.keep(line, mode=0o644)
            refused = self.run_as_user(server)
            self.assertEqual(refused.returncode, 125)
            self.assertIn(f"{path}: others may read this token; chmod 600 {path}", refused.stderr)
            self.keep(line[:40])
            refused = self.run_as_user(server)
            self.assertIn("cut or damaged", refused.stderr)
            self.assertNotIn(line.split("_")[2][:8], refused.stderr)
            self.keep(line)
            both = self.run_as_user(server, before=("--secret-file", server.secret_file, "--token-file", path))
            self.assertIn("name one of them", both.stderr)
            # A token is not visible to the program or to a process that inspects it.
            env = {**self.env, "GPURUN_TOKEN_FILE": path}
            seen = self.run_as_user(server, "sh", "-c", "env; cat /proc/self/environ /proc/$PPID/cmdline "
                                    "/proc/$PPID/environ", env=env)
            self.assertEqual(seen.returncode, 0, seen.stderr)
            report = subprocess.run([world.GPUCTL, "report", "-o", "-", "-l", server.address],
                                    env={**env, "CUDA_MISTAKE": "x" + line.strip()},
                                    capture_output=True, text=True, timeout=world.SECONDS)
            self.assertIn("CUDA_MISTAKE=(hidden)", report.stdout)
            self.assertIn("free", report.stdout)
            new = os.path.join(self.folder, "new")
            self.assertEqual(self.operate(server, "create", "ben", "-o", new).stdout, "")
            self.assertEqual(os.stat(new).st_mode & 0o7777, 0o600)
            self.operate(server, "create", "ben", "-o", new, status=125)
            with open(server.audit_file, encoding="utf-8") as file:
                shown = seen.stdout + report.stdout + file.read()
        self.assertNotIn(line.split("_")[2], shown + server.errors)

    def test_wrong_token_commands_change_nothing(self):
        with world.Gpurund() as server:
            self.make(server, "anna")
            with open(server.tokens_file, encoding="utf-8") as file:
                before = file.read()
            for words, status, named in (
                    (("create", "operator"), 2, "server's own secret"), (("create", "../x"), 2, "a user's name"),
                    (("create", "a", "--expires", "soon"), 2, "12h, 90d or 2w"),
                    (("create", "a", "--expires", "99999d"), 2, "ten years"),
                    (("create", "a", "--note", "a\nb"), 2, "control characters"),
                    (("create", "a", "--server-fingerprint", "sha256:12"), 2, "64 hexadecimal"),
                    (("create", "a", "-o", "/no/such/folder/x"), 125, "/no/such/folder/x"),
                    (("revoke",), 2, "by their ids"), (("revoke", "xyz"), 2, "12 hexadecimal"),
                    (("revoke", "0" * 12), 125, "nothing was revoked"),
                    (("revoke", "--user", "ben"), 125, "no valid token"),
                    (("revoke", "0" * 12, "--user", "anna"), 2, "excludes"),
                    (("create",), 2, "user"), ((), 2, "subcommand")):
                done = subprocess.run([world.GPUCTL, "token", *words,
                                       *(("--tokens", server.tokens_file) if words else ())],
                                      env=environment(), capture_output=True, text=True,
                                      timeout=world.SECONDS)
                self.assertEqual((done.returncode, done.stdout), (status, ""), words)
                self.assertRegex(done.stderr, rf"^gpuctl: [^\n]*{named}[^\n]*\n$")
            with open(server.tokens_file, encoding="utf-8") as file:
                self.assertEqual(file.read(), before)
            os.chmod(server.tokens_file, 0o640)
            refused = self.operate(server, "create", "ben", status=125)
            self.assertIn("others may read it", refused.stderr)
            self.assertEqual(self.operate(server, "list", status=125).stdout, "")

    def test_silent_connections_do_not_lock_user_out(self):
        with world.Gpurund() as server:
            self.keep(self.make(server, "anna")[1])
            address = ("127.0.0.1", server.port())
            silent = [socket.create_connection(address, timeout=world.SECONDS) for _ in range(64)]
            self.assertEqual(self.run_as_user(server).returncode, 0)
            for each in silent:
                each.close()


class UnusedTokensFile(unittest.TestCase):
    def create(self, *words):
        with tempfile.TemporaryDirectory() as folder:
            return subprocess.run([world.GPUCTL, "token", "create", "anna", *words],
                                  env=environment(STATE_DIRECTORY=folder), capture_output=True, text=True,
                                  timeout=world.SECONDS, check=True).stderr

    def test_create_warns_when_no_server_reads_token(self):
        warning = "warning: no gpurund that runs on this machine uses "
        self.assertIn(warning, self.create())
        with world.Gpurund() as server:
            self.assertIn(warning, self.create())
            self.assertNotIn(warning, self.create("--tokens", server.tokens_file))
            server.process.kill()
            server.process.wait(world.SECONDS)
            self.assertIn(warning, self.create("--tokens", server.tokens_file))


if __name__ == "__main__":
    world.main()
