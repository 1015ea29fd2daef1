#!/usr/bin/env python3
"""Signals to gpurund: SIGHUP reads its configuration again and ends nothing. A signal that stops it
sends the reason to each client once. All others leave it and its workers alone."""
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../support"))
import world  # noqa: E402
from gpurund_test import DEVICE_UNAVAILABLE, GpuProgram  # noqa: E402
from world import alive, environment, gpurun, start, until  # noqa: E402

STOPPED = "the server was stopped by its operator"


class Configured:
    """A gpurund with a file that the test changes."""

    def __init__(self, test, text, *words, **options):
        holder = tempfile.TemporaryDirectory()
        test.addCleanup(holder.cleanup)
        self.folder = holder.name
        self.tokens = os.path.join(self.folder, "tokens")
        self.path = os.path.join(self.folder, "gpurund.toml")
        self.always = f'worker-uids = "none"\naudit = "none"\ntokens = "{self.tokens}"\n'
        self.write(text)
        self.server = world.Gpurund("--config", self.path, *words, **options)
        self.server.__enter__()
        test.addCleanup(self.server.__exit__)
        self.seen = 0

    def write(self, text):
        with open(self.path + ".new", "w", encoding="utf-8") as file:
            file.write(self.always + text)
        os.rename(self.path + ".new", self.path)

    def reload(self, said):
        """The log's lines since the last call, when `said` is among them."""
        self.server.process.send_signal(signal.SIGHUP)
        until(lambda: said in self.server.log()[self.seen:], f"{said!r} in {self.server.log()!r}")
        lines = self.server.log()[self.seen:]
        self.seen += len(lines)
        return lines

    def user(self, name):
        """Options by which gpurun acts as that user."""
        path = os.path.join(self.folder, name)
        done = subprocess.run([world.GPUCTL, "token", "create", name, "-o", path, "--tokens", self.tokens],
                              env=environment(), capture_output=True, text=True, timeout=world.SECONDS)
        assert done.returncode == 0, done.stderr
        return ["-l", self.server.address, "--token-file", path]


class Reload(unittest.TestCase):
    def test_reload_changes_bounds_and_keeps_runs(self):
        configured = Configured(self, 'log = "info"\n')
        anna = configured.user("anna")
        program = GpuProgram(configured.server)
        configured.write('log = "info"\n[user.anna]\nmax-gpus = 0\n')
        self.assertIn("changed: user\n", configured.reload("read again"))
        refused = gpurun(*anna, "--", "true")
        self.assertEqual(refused.returncode, 125)
        self.assertIn("this server allows 0 (max-gpus)", refused.stderr)
        configured.write('log = "info"\n[every-user]\nmax-leases = 5\n')
        self.assertIn("changed: every-user, user\n", configured.reload("read again"))
        self.assertEqual(program.go_on(), ("", ""))
        self.assertEqual(program.run.returncode, 0)
        self.assertEqual(gpurun(*anna, "--", "true").returncode, 0)

    def test_reload_names_settings_that_need_restart(self):
        configured = Configured(self, 'worker-memory = "4GiB"\n')
        changed = ('listen = "127.0.0.2:1"\nworker-memory = "5GiB"\ncache-bytes = 5\n'
                   'spare-workers = 0\n[emulated]\ndevices = 3\n')
        for _ in range(2):
            configured.write(changed)
            # --listen on the command line overrides the file, so the file's value changes nothing.
            self.assertIn("needs a restart: emulated, worker-memory, spare-workers, cache-bytes\n",
                          configured.reload("needs a restart"))
        configured.write('log = "info"\nworker-memory = "4096 MiB"\n')
        lines = configured.reload("read again")
        self.assertNotIn("restart", lines)
        self.assertIn("changed: log\n", lines)
        self.assertEqual(gpurun(*configured.server.options(), "--", "true").returncode, 0)

    def test_reload_ignores_file_with_errors(self):
        configured = Configured(self, "")
        anna = configured.user("anna")
        bounds = "[user.anna]\nmax-gpus = 0\n"
        for text, line, named in (("lgo = 'info'\n" + bounds, 4, "did you mean 'log'?"),
                                  (bounds + "[emulated]\ndevices = 99\n", 7, "1 to 16"),
                                  (bounds + "[", 6, ""), ("log = 'loud'\n" + bounds, 4, "'loud'"),
                                  ("tls-key = '/no'\n" + bounds, 4, "needs tls-certificate")):
            configured.write(text)
            lines = configured.reload("nothing is changed")
            self.assertIn(f"[error] nothing is changed by SIGHUP: {configured.path}:{line}: ", lines)
            self.assertIn(named, lines)
            self.assertEqual(gpurun(*anna, "--", "true").returncode, 0)
        os.unlink(configured.path)
        configured.reload("nothing is changed by SIGHUP: " + configured.path)
        configured.write(bounds)
        configured.server.process.send_signal(signal.SIGHUP)
        until(lambda: gpurun(*anna, "--", "true").returncode == 125, "the bound is heeded")

    def test_reload_reads_operator_secret(self):
        configured = Configured(self, 'log = "info"\n')
        server = configured.server
        old = os.path.join(configured.folder, "old")
        shutil.copy(server.secret_file, old)
        with open(server.secret_file, "w", encoding="utf-8") as file:
            file.write("another secret of this server")
        self.assertIn("changed: the operator's secret\n", configured.reload("read again"))
        self.assertEqual(gpurun(*server.options(), "--", "true").returncode, 0)
        self.assertIn("the secret is wrong",
                      gpurun("-l", server.address, "--secret-file", old, "--", "true").stderr)
        os.chmod(server.secret_file, 0o644)
        configured.reload("others may read it")
        self.assertEqual(gpurun("-l", server.address, "--secret-file", old, "--", "true").returncode, 125)

    def test_reload_does_not_block_on_fifo(self):
        """Opening a FIFO waits for its writer, and would block the daemon's loop."""
        configured = Configured(self, 'log = "info"\n')
        server = configured.server
        for path, said in ((server.secret_file, "secret-file names a regular file"),
                           (configured.path, "the configuration must be a regular file")):
            os.rename(path, path + ".kept")
            os.mkfifo(path, 0o600)
            configured.reload(said)
            os.rename(path + ".kept", path)
        fifo = os.path.join(configured.folder, "key")
        os.mkfifo(fifo, 0o600)
        configured.write(f'log = "info"\ntls-certificate = "{fifo}"\ntls-key = "{fifo}"\n')
        configured.reload(f"TLS: {fifo} is no file")
        self.assertEqual(gpurun(*server.options(), "--", "true").returncode, 0)

    def test_tokens_lock_does_not_delay_stop(self):
        """Another process, such as gpuctl on a slow disk, holds the lock while gpurund ends."""
        configured = Configured(self, 'log = "info"\n')
        self.assertEqual(gpurun(*configured.user("anna"), "--", "true").returncode, 0)
        with open(configured.tokens + ".lock", "rb+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            configured.server.process.terminate()
            self.assertEqual(configured.server.process.wait(8), 0)
        self.assertIn("when tokens were used is not kept", configured.server.log())

    def make_certificate(self, folder, name):
        paths = [os.path.join(folder, f"{name}.{part}") for part in ("pem", "key")]
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
                        "-nodes", "-subj", f"/CN={name}", "-days", "2", "-out", paths[0], "-keyout", paths[1]],
                       check=True, capture_output=True, timeout=world.SECONDS)
        os.chmod(paths[1], 0o600)
        shown = subprocess.run([world.GPURUND, "--fingerprint", "--tls-certificate", paths[0], "--tls-key",
                                paths[1]], capture_output=True, text=True, check=True, env=environment(),
                               timeout=world.SECONDS)
        return paths, shown.stdout.strip()

    def test_reload_changes_certificate_and_keeps_sessions(self):
        if shutil.which("openssl") is None:
            self.skipTest("there is no openssl command")
        with tempfile.TemporaryDirectory() as folder:
            (certificate, key), first = self.make_certificate(folder, "first")
            (other_certificate, other_key), second = self.make_certificate(folder, "second")
            files = f'tls = true\nlog = "info"\ntls-certificate = "{certificate}"\ntls-key = "{key}"\n'
            configured = Configured(self, files)
            server = configured.server
            program = GpuProgram(server, "--tls", "--server-fingerprint", first)
            shutil.copy(other_certificate, certificate)
            shutil.copy(other_key, key)
            self.assertIn("changed: the server's certificate\n", configured.reload("read again"))
            self.assertEqual(program.go_on(), ("", ""))
            self.assertEqual(program.run.returncode, 0)
            for fingerprint, status in ((first, 125), (second, 0)):
                done = gpurun("--tls", "--server-fingerprint", fingerprint, *server.options(), "--", "true")
                self.assertEqual(done.returncode, status, done.stderr)
            with open(key, "w", encoding="utf-8") as file:
                file.write("no key")
            configured.reload("nothing is changed by SIGHUP: TLS: ")
            done = gpurun("--tls", "--server-fingerprint", second, *server.options(), "--", "true")
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_reload_without_file_changes_nothing(self):
        with world.Gpurund("--log", "info") as server:
            server.process.send_signal(signal.SIGHUP)
            until(lambda: "read again; changed: nothing" in server.log(), "it says so")
            self.assertEqual(gpurun(*server.options(), "--", "true").returncode, 0)


class OtherSignals(unittest.TestCase):
    def test_unused_signals_end_no_process(self):
        """As systemctl kill signals all processes of a unit."""
        with world.Gpurund("--log", "info") as server:
            program = GpuProgram(server)
            processes = [server.process.pid, *server.all_workers()]
            self.assertGreater(len(processes), 1)
            for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP):
                for process in processes:
                    os.kill(process, number)
            for number in (signal.SIGPIPE, signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF, signal.SIGIO,
                           signal.SIGPWR, signal.SIGSTKFLT, signal.SIGRTMIN, signal.SIGRTMAX):
                os.kill(server.process.pid, number)
            until(lambda: "read again" in server.log(), "it has seen them")
            self.assertTrue(all(map(alive, processes)))
            self.assertEqual(program.go_on(), ("", ""))
            self.assertEqual(program.run.returncode, 0)

    def test_worker_ignores_terminal_signals(self):
        with world.Gpurund() as server:
            program = GpuProgram(server)
            (worker,) = server.workers()
            self.assertNotEqual(os.getpgid(worker), os.getpgid(server.process.pid))
            for number in (signal.SIGINT, signal.SIGQUIT):
                os.kill(worker, number)
            self.assertEqual(program.go_on(), ("", ""))
            self.assertEqual(program.run.returncode, 0)


class Stop(unittest.TestCase):
    def test_each_client_reports_operator_stop_once(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
            with self.subTest(number=number), world.Gpurund() as server:
                program = GpuProgram(server)
                waiting = start("--timeout", "1h", *server.options(), "--", "true")
                until(lambda server=server: world.holdings(server)["waiting"] == 1, "it waits")
                server.process.send_signal(number)
                self.assertEqual(server.process.wait(world.SECONDS), 0)
                _, errors = program.go_on()
                self.assertEqual(program.run.returncode, DEVICE_UNAVAILABLE)
                self.assertRegex(errors, rf"^[^\n]*\b{server.address}: {STOPPED}; the last call was "
                                         r"[^\n]*\n$")
                _, errors = waiting.communicate(timeout=world.SECONDS)
                self.assertEqual(waiting.returncode, 125)
                self.assertEqual(errors.count(STOPPED), 1, errors)

    def test_gpurun_reports_stop_for_program_without_gpu_process(self):
        with world.Gpurund() as server:
            reading, writing = os.pipe()
            run = subprocess.Popen([world.GPURUN, *server.options(), "--", "sh", "-c", "echo ready; read w"],
                                   stdin=reading, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   env=environment(), text=True)
            os.close(reading)
            run.stdout.readline()
            server.process.terminate()
            said = run.stderr.readline()
            os.close(writing)
            self.assertEqual(said, f"gpurun: server {server.address}: {STOPPED}; the program's CUDA calls "
                                   "fail from now on\n")
            self.assertEqual(run.communicate(timeout=world.SECONDS)[1], "")

    def test_unresponsive_client_does_not_delay_stop(self):
        with world.Gpurund() as server:
            run = start(*server.options(), "--", "sh", "-c", "echo ready; exec sleep 1000")
            run.stdout.readline()
            run.send_signal(signal.SIGSTOP)
            server.process.terminate()
            self.assertEqual(server.process.wait(world.SECONDS), 0)
            run.kill()
            run.communicate(timeout=world.SECONDS)


if __name__ == "__main__":
    world.main()
