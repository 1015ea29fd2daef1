#!/usr/bin/env python3
"""gpurun's options, as users mistake them or change their mind. Each mistake ends at once with 125
and one line with the correct form, and nothing runs."""
import contextlib
import os
import pty
import select
import signal
import socket
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../support"))
import world  # noqa: E402
from world import alive, environment, gpurun, until  # noqa: E402

DEVICE_UNAVAILABLE = 46  # CUDA_ERROR_DEVICE_UNAVAILABLE


class WrongOptions(unittest.TestCase):
    def refused(self, words, said, status=125, **changes):
        done = gpurun(*words, "--", "echo", "ran", env=environment(**changes))
        self.assertEqual((done.returncode, done.stdout), (status, ""), (words, done.stderr))
        self.assertRegex(done.stderr, rf"^gpurun: [^\n]*{said}[^\n]*\n$")

    def test_gpu_count_must_be_1_to_64(self):
        for number in ("0", "65", "99", "-1", "", "1.5", "two", " 1", "1e3", "4294967297"):
            self.refused(["-n", number], rf"-n: '{number}' is no number of GPUs from 1 to 64")

    def test_private_server_refuses_more_gpus_than_it_has(self):
        self.refused(["-n", "2"], "2 GPUs wanted.*private server.*-l or -s")

    def test_missing_option_value_is_refused(self):
        for option in ("-n", "-l", "-s", "--timeout", "--device", "--secret-file"):
            done = gpurun(option)
            self.assertEqual(done.returncode, 125)
            self.assertEqual(done.stderr,
                             f"gpurun: {option} needs a value; gpurun --help shows which\n")

    def test_repeated_option_is_refused(self):
        self.refused(["-n", "1", "-n", "1"], "-n is given more than once")
        self.refused(["-l", "a", "-l", "b"], "-l is given more than once")

    def test_unusable_secret_file_is_refused(self):
        self.refused(["--secret-file", "/no/such"], "/no/such: No such file")
        self.refused(["--secret-file", "/etc"], "/etc is a folder")

    def test_token_or_secret_given_as_file_name_is_hidden(self):
        digits = "3f786850e387550f" * 4
        token, secret = f"gpurun1_0123456789ab_{digits}_01234567", "c0ffee0ddba11beef0" * 3
        for words, said, changes in (
                ([], "GPURUN_TOKEN_FILE takes the name of a file", {"GPURUN_TOKEN_FILE": token}),
                ([], "GPURUN_TOKEN_FILE takes", {"GPURUN_TOKEN_FILE": token[:40]}),
                ([], "GPURUN_TOKEN_FILE takes", {"GPURUN_TOKEN_FILE": f"'{token}'"}),
                ([], "GPURUN_SECRET_FILE takes", {"GPURUN_SECRET_FILE": secret}),
                ([], "name one of them", {"GPURUN_TOKEN_FILE": token, "GPURUN_SECRET_FILE": secret}),
                (["--token-file", token], "--token-file takes", {}),
                (["--token-file", digits], "--token-file takes", {}),
                (["--secret-file", secret], "--secret-file takes", {}),
                (["--token=" + token], "there is no option", {}),
                (["-s", token], "-s: cannot read", {}),
                (["-l", token + ":x"], "a token is in the place of a server", {}),
                ([], "GPURUN_SERVERS: a token is in the place", {"GPURUN_SERVERS": token}),
                (["--tls-ca", token, "-l", "127.0.0.1:1"], "no server at|no certificates", {})):
            with self.subTest(words=words, changes=changes):
                self.refused(words, said, **changes)
                done = gpurun(*words, "--", "echo", "ran", env=environment(**changes))
                self.assertNotIn(digits[:16], done.stderr)
                self.assertNotIn(secret[:8], done.stderr)
        done = gpurun(token)
        self.assertIn("gpurun1_(hidden)", done.stderr)
        self.assertNotIn(digits[:16], done.stderr)
        for command in (
                [world.GPUCTL, "list", "--token-file", token], [world.GPUCTL, "list", "--secret-file", secret],
                [world.GPUCTL, "list", token], [world.GPUCTL, "token", "revoke", token],
                [world.GPUCTL, "token", "create", token, "--tokens", "/no/such"],
                [world.GPUCTL, "token", "list", "--tokens", token], [world.GPUCTL, "trace", token],
                [world.GPURUND, "--secret-file", secret], [world.GPURUND, "--tokens", token],
                [world.GPURUND, "--config", token], [world.GPURUND, token]):
            with self.subTest(command=command):
                done = subprocess.run([*command], env=environment(), capture_output=True, text=True,
                                      timeout=world.SECONDS, stdin=subprocess.DEVNULL)
                self.assertNotEqual(done.returncode, 0)
                self.assertNotEqual(done.stderr, "")
                self.assertNotIn(digits[:16], done.stdout + done.stderr)
                self.assertNotIn(secret[:8], done.stdout + done.stderr)
        report = subprocess.run([world.GPUCTL, "report", "-o", "-", "-l", "127.0.0.1:1"], capture_output=True,
                                env=environment(CUDA_SECRET_FILE=secret, NCCL_TOKEN_FILE=token), text=True,
                                timeout=world.SECONDS)
        self.assertIn("CUDA_SECRET_FILE=(hidden)", report.stdout)
        self.assertIn("NCCL_TOKEN_FILE=(hidden)", report.stdout)

    def test_message_names_refused_secret(self):
        with world.Gpurund() as server, tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "other")
            with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="utf-8") as file:
                file.write("no secret of this server's")
            said = f"{server.address}: the secret is wrong; it refused the secret of {path}, which "
            self.refused(["--secret-file", path, "-l", server.address], said)
            self.refused(["-l", server.address], said, GPURUN_SECRET_FILE=path)
            # No secret is named, so the advice is to name one.
            self.refused(["-l", server.address], "wants a token, and none was found: ",
                         XDG_RUNTIME_DIR=folder)

    def test_help_shows_place_of_program(self):
        self.assertIn("gpurun [OPTIONS] [--] PROGRAM [ARGUMENT...]", gpurun("--help").stdout)

    def test_unknown_and_future_options_are_refused(self):
        self.refused(["--fast"], "there is no option --fast; gpurun --help")
        self.refused(["-x"], "there is no option -x; gpurun --help")
        for word in ("-p", "-p0.5", "-m", "--filter"):
            self.refused([word], r"-\w+ does not exist yet in this version")

    def test_wrong_transports_are_refused(self):
        self.refused(["--transport", "ib"], "--transport is 'ib': 'ib' is no transport; it may be shm, rdma, tcp")
        self.refused(["--transport", "tcp,tcp"], "it names tcp twice")
        self.refused(["--transport", ""], "a transport must be named: shm, rdma, tcp")
        self.refused(["--trust-fabric=a,,b"], "--trust-fabric: '' is not a device or port")

    def test_invalid_or_unreachable_addresses_are_refused(self):
        for address, said in (("::1", r"in brackets, \[::1\]"), ("[::1", "is no .IPv6."),
                              ("[::1]x", "is no .IPv6."), ("host:", "no port after the colon"),
                              ("host:0", "1 to 65535"), ("host:65536", "1 to 65535"),
                              ("", "names no host"), ("a,,b", "names no host")):
            self.refused(["-l", address], said)
        self.refused(["-l", "x" * 64 + ".invalid"], "cannot find host 'x+.invalid'.*is the name right")
        self.refused(["-l", "[::1]:1"], r"no server at \[::1\]:1: .*is gpurund running there")

    def test_invalid_servers_files_are_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            def file(name, content):
                path = os.path.join(folder, name)
                with open(path, "wb") as opened:
                    opened.write(content)
                return path

            for path, said in (
                    (os.path.join(folder, "none"), "-s: cannot read .*none: No such file"),
                    (folder, "-s: cannot read .*: Is a directory"),
                    ("/dev/zero", "/dev/zero: more than 256 KiB"),
                    (file("binary", b"host\0\x1b[31m\n"), "binary is no text"),
                    (file("empty", b"# none\r\n"), "empty names no server"),
                    (file("commas", b"\none:1,two:2\n"), "commas:2: write one server a line, no commas"),
                    (file("words", b"host a\n"), "words:1: 'host a' names no host")):
                self.refused(["-s", path], said)
            self.refused(["-s", file("windows", b"\r\n127.0.0.1:1\r\n")], "no server at 127.0.0.1:1: ")
            # As a user without read permission, because root may read everything.
            if os.geteuid() != 0 or world.can_be(65534):
                path = file("others", b"127.0.0.1:1\n")
                os.chmod(folder, 0o755)
                os.chmod(path, 0o000)
                before = ["setpriv", "--reuid=65534", "--clear-groups"] if os.geteuid() == 0 else []
                done = subprocess.run([*before, world.GPURUN, "-s", path, "--", "true"],
                                      env=environment(), capture_output=True, text=True,
                                      timeout=world.SECONDS, stdin=subprocess.DEVNULL)
                self.assertEqual(done.returncode, 125, done.stderr)
                self.assertRegex(done.stderr, "-s: cannot read .*others: Permission denied")

    def test_invalid_durations_are_refused(self):
        for text in ("5", "-1s", "1y", "soon", "1.5s"):
            self.refused(["--timeout", text], rf"--timeout: '{text}' is no duration; write one like 30s")
        for text in ("721h", "31d"):
            self.refused(["--timeout", text], "more than 30 days")

    def test_invalid_device_options_are_refused(self):
        self.refused(["--device", "fast"], "neither real nor emulated")
        self.refused(["--device", "real", "-l", "127.0.0.1"], "the server named by -l or -s has its own")
        for words in (["--server-fingerprint", "sha256:" + "0" * 64], ["--tls-ca", "/etc/hostname"]):
            self.refused(words, "a server that -l or -s names; a private server has none")
        if os.path.exists("/dev/nvidiactl"):
            self.skipTest("this machine has NVIDIA's driver")
        done = gpurun("--device", "real", "--", "echo", "ran", env=environment(GPURUN_DRIVER=None))
        self.assertEqual((done.returncode, done.stdout), (125, ""))
        self.assertRegex(done.stderr, "libcuda.so.1(.|\n)*gpurun: the private server did not start.*"
                                      "--device emulated.*-l")


class PrivateServers(unittest.TestCase):
    """That kernels run on the CPU, because this machine has no GPU, is one warning and affects
    nothing else."""

    def test_emulated_device_fallback_prints_one_notice(self):
        if os.path.exists("/dev/nvidiactl"):
            self.skipTest("this machine has NVIDIA's driver")
        if not os.path.exists(world.DRIVERS["emulated"]):
            self.skipTest("this build has no emulated device")
        env = environment(GPURUN_DRIVER=None)
        note = "gpurun: no NVIDIA GPU on this machine: kernels run on the emulated device (the CPU)\n"
        for words, said in (([], note), (["-q"], ""), (["--device", "emulated"], "")):
            done = gpurun(*words, "--", "echo", "ran", env=env)
            self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "ran\n", said), words)


class ClosedDescriptors(unittest.TestCase):
    """Started without standard descriptors, as services do. No connection gets one of their
    numbers, which would send messages into it. The program lacks them as without gpurun."""

    SCRIPT = """import os, sys
for pid in (os.getpid(), os.getppid()):
    print(*(os.path.exists(f'/proc/{pid}/fd/{fd}') and os.readlink(f'/proc/{pid}/fd/{fd}')
            for fd in range(3)), file=open(sys.argv[1], 'a'), sep=',')
"""

    def test_program_keeps_closed_standard_descriptors(self):
        with world.Gpurund() as server, tempfile.TemporaryDirectory() as folder:
            seen = os.path.join(folder, "seen")
            for named in (True, False):
                words = [world.GPURUN, *(server.options() if named else []), "--", sys.executable, "-c",
                         self.SCRIPT, seen]
                done = subprocess.run(["sh", "-c", '"$@" <&- >&- 2>&-', "sh", *words], timeout=world.SECONDS,
                                      env=environment())
                self.assertEqual(done.returncode, 0)
                with open(seen, encoding="utf-8") as file:
                    program, gpurun_itself = file.read().splitlines()
                self.assertEqual(gpurun_itself, "/dev/null,/dev/null,/dev/null")
                self.assertNotIn("socket", program)
                self.assertNotIn("/dev/null", program)
                os.remove(seen)

    def test_gpurund_opens_dev_null_for_closed_descriptors(self):
        before = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh"]
        with world.Gpurund(before=before) as server:
            for fd in range(3):
                self.assertEqual(os.readlink(f"/proc/{server.process.pid}/fd/{fd}"), "/dev/null")
            self.assertEqual(gpurun(*server.options(), "--", world.ARGS.client, "once").returncode, 0)


class NamedServers(unittest.TestCase):
    @contextlib.contextmanager
    def busy(self):
        """A server that has leased its only GPU to another run."""
        with world.Gpurund() as server:
            holder = world.start(*server.options(), "--", "sh", "-c", "echo ready; exec sleep 1000")
            try:
                holder.stdout.readline()
                yield server, holder
            finally:
                holder.terminate()
                holder.communicate(timeout=world.SECONDS)

    def test_run_uses_ipv6_address(self):
        try:
            with socket.create_server(("::1", 0), family=socket.AF_INET6):
                pass
        except OSError as error:
            self.skipTest(f"no IPv6 here: {error}")
        with world.Gpurund("--listen", "[::1]:0") as server:
            self.assertRegex(server.address, r"^\[::1\]:\d+$")
            done = gpurun(*server.options(), "--", world.ARGS.client, "once")
            self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_stats_require_cuda_calls(self):
        with world.Gpurund() as server:
            done = gpurun("--stats", *server.options(), "--", "true")
            self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
            done = gpurun("--stats", *server.options(), "--", world.ARGS.client, "once")
            self.assertEqual(done.returncode, 0)
            self.assertRegex(done.stderr, r"gpu_client(.|\n)*blocking round trips: \d+")

    def test_control_c_ends_wait_for_gpu(self):
        with self.busy() as (server, holder):
            pid, terminal = pty.fork()
            if pid == 0:
                os.execve(world.GPURUN, [world.GPURUN, "--timeout", "1h", *server.options(), "--",
                                         "echo", "ran"], environment())
            seen = b""
            while b"waiting for a free GPU" not in seen:
                self.assertTrue(select.select([terminal], [], [], world.SECONDS)[0], seen)
                seen += os.read(terminal, 4096)
            self.assertEqual(world.holdings(server)["waiting"], 1)
            os.write(terminal, b"\x03")
            until(lambda: not alive(pid), "gpurun ends")
            self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), -signal.SIGINT)
            os.close(terminal)
            self.assertNotIn(b"ran", seen)
            until(lambda: world.holdings(server)["waiting"] == 0, "it left the queue")
            self.assertIsNone(holder.poll())

    def test_server_death_ends_wait_for_gpu(self):
        with self.busy() as (server, _):
            waiting = world.start("--timeout", "1h", *server.options(), "--", "echo", "ran")
            until(lambda: world.holdings(server)["waiting"] == 1, "it waits")
            server.process.kill()
            said, errors = waiting.communicate(timeout=world.SECONDS)
            self.assertEqual((waiting.returncode, said), (125, ""))
            self.assertRegex(errors, rf"^gpurun: waiting for [^\n]*\ngpurun: server {server.address} hung up: ")

    def test_server_death_returns_device_unavailable(self):
        with world.Gpurund() as server:
            reading, writing = os.pipe()
            run = subprocess.Popen([world.GPURUN, *server.options(), "--", world.ARGS.client, "wait"],
                                   stdin=reading, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   env=environment(), text=True)
            os.close(reading)
            self.assertEqual(run.stdout.readline(), "ready\n")
            server.process.kill()
            until(lambda: not alive(server.process.pid), "it dies")
            os.close(writing)
            _, errors = run.communicate(timeout=world.SECONDS)
            self.assertEqual(run.returncode, DEVICE_UNAVAILABLE)
            self.assertIn("the last call was cuCtxSynchronize", errors)


if __name__ == "__main__":
    world.main()
