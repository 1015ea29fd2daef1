#!/usr/bin/env python3
"""Life of a run: signals, terminals, descendants and deaths. Nothing remains afterwards."""
import os
import pty
import re
import select
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../support"))
import world  # noqa: E402
from world import alive, environment, gpurun, server_of, start, until  # noqa: E402

# Prints that it is ready, then prints each signal that it gets. SIGTERM ends it with status 3.
TELLS_SIGNALS = r"""
import os, signal, sys
def tell(number, frame):
    print(signal.Signals(number).name, flush=True)
    if number == signal.SIGTERM: os._exit(3)
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM):
    signal.signal(number, tell)
print("ready", flush=True)
while True: signal.pause()
"""


def python(source):
    return ["--", "python3", "-c", source]


def read_until(terminal, wanted):
    """The terminal's output up to and with `wanted`."""
    seen = b""
    while wanted not in seen:
        ready, _, _ = select.select([terminal], [], [], world.SECONDS)
        if not ready:
            raise AssertionError(f"{wanted} never came: {seen}")
        try:
            seen += os.read(terminal, 4096)
        except OSError:  # The last process of the terminal has gone.
            raise AssertionError(f"{wanted} never came: {seen}") from None
    return seen


class Signals(unittest.TestCase):
    def test_signals_to_gpurun_reach_the_program_once(self):
        run = start(*python(TELLS_SIGNALS))
        self.assertEqual(run.stdout.readline(), "ready\n")
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2):
            run.send_signal(number)
            self.assertEqual(run.stdout.readline().strip(), number.name)
        run.send_signal(signal.SIGTERM)
        rest, errors = run.communicate(timeout=world.SECONDS)
        self.assertEqual((rest, errors, run.returncode), ("SIGTERM\n", "", 3))

    def test_gpurun_dies_of_same_signal_as_program(self):
        run = start("--", "sh", "-c", "echo ready; exec sleep 1000")
        run.stdout.readline()
        run.send_signal(signal.SIGTERM)
        run.communicate(timeout=world.SECONDS)
        self.assertEqual(run.returncode, -signal.SIGTERM)

    def test_program_inherits_ignored_and_blocked_signals(self):
        command = ["nohup", world.GPURUN, "--", "sh", "-c", "grep -E 'SigIgn|SigBlk' /proc/self/status"]
        with_us = subprocess.run(command, env=environment(), capture_output=True, text=True,
                                 stdin=subprocess.DEVNULL, timeout=world.SECONDS).stdout
        without = subprocess.run(["nohup", *command[3:]], capture_output=True, text=True,
                                 stdin=subprocess.DEVNULL, timeout=world.SECONDS).stdout
        self.assertEqual(with_us, without)
        self.assertIn("SigIgn", with_us)


class Terminal(unittest.TestCase):
    """The program uses the terminal as if gpurun were absent."""

    def run_on_terminal(self, *words):
        pid, terminal = pty.fork()
        if pid == 0:
            os.execve(world.GPURUN, [world.GPURUN, *words], environment())
        return pid, terminal

    def ended(self, pid):
        until(lambda: not alive(pid), "gpurun ends")
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    def test_control_c_reaches_the_program_once_and_not_the_server(self):
        pid, terminal = self.run_on_terminal(*python(TELLS_SIGNALS))
        read_until(terminal, b"ready")
        server = server_of(pid)
        # gpurun is stopped, so that a signal from it cannot be taken for the terminal's own.
        os.kill(pid, signal.SIGSTOP)
        until(lambda: world.stat_fields(pid)[0] == "T", "gpurun stops")
        os.write(terminal, b"\x03")
        seen = read_until(terminal, b"SIGINT")
        os.kill(pid, signal.SIGCONT)
        os.kill(pid, signal.SIGUSR1)
        seen += read_until(terminal, b"SIGUSR1")
        self.assertTrue(alive(server))
        os.kill(pid, signal.SIGTERM)
        seen += read_until(terminal, b"SIGTERM")
        self.assertEqual(seen.count(b"SIGINT"), 1)
        self.assertEqual(self.ended(pid), 3)
        os.close(terminal)

    def test_control_c_ends_a_program_that_does_not_catch_it(self):
        pid, terminal = self.run_on_terminal("--", "sh", "-c", "echo ready; exec sleep 1000")
        read_until(terminal, b"ready")
        os.write(terminal, b"\x03")
        self.assertEqual(self.ended(pid), -signal.SIGINT)
        os.close(terminal)

    def test_program_reads_terminal(self):
        pid, terminal = self.run_on_terminal("--", "sh", "-c", 'read word; echo "got $word"')
        read_until(terminal, b"1 GPU")
        os.write(terminal, b"this\n")
        read_until(terminal, b"got this")
        self.assertEqual(self.ended(pid), 0)
        os.close(terminal)

    def test_shell_stops_and_continues_program(self):
        pid, terminal = pty.fork()
        if pid == 0:
            os.execvpe("bash", ["bash", "--norc", "--noediting", "-i"], environment(PS1="next> "))
        read_until(terminal, b"next> ")
        os.write(terminal, f"{world.GPURUN} -- sh -c 'echo re''ady; read w; exit 4'\n".encode())
        read_until(terminal, b"ready")
        os.write(terminal, b"\x1a")
        self.assertIn(b"Stopped", read_until(terminal, b"next> "))
        os.write(terminal, b"fg\n")
        read_until(terminal, b"exit 4")
        os.write(terminal, b"word\n")
        read_until(terminal, b"next> ")
        os.write(terminal, b"echo status $?\n")
        read_until(terminal, b"status 4")
        os.write(terminal, b"exit\n")
        self.assertEqual(self.ended(pid), 0)
        os.close(terminal)

    def test_control_z_has_no_effect_without_job_control(self):
        # As in a container with gpurun as its first process: the terminal's stop has no effect
        # there.
        pid, terminal = self.run_on_terminal("--", "sh", "-c", "echo ready; read word; exit 4")
        read_until(terminal, b"ready")
        os.write(terminal, b"\x1a")
        os.write(terminal, b"\n")
        self.assertEqual(self.ended(pid), 4)
        os.close(terminal)

    def test_terminal_shows_one_line_unless_quiet(self):
        for words, lines in (([], 1), (["-q"], 0)):
            pid, terminal = self.run_on_terminal(*words, "--", "echo", "done")
            seen = read_until(terminal, b"done")
            # newcomers_test covers the messages at the end.
            before, _, _ = seen.partition(b"done")
            self.assertEqual(len(re.findall(rb"gpurun: .*", before)), lines, seen)
            if lines:
                # Server, GPU, transport, and whether it is encrypted.
                self.assertRegex(seen, rb"1 GPU, [^,]+ of a private server \(.*\), tcp.*not encrypted")
            self.assertEqual(self.ended(pid), 0)
            os.close(terminal)


class Descendants(unittest.TestCase):
    """The lease lasts as long as any descendant of the program. The status is the program's."""

    def test_background_process_keeps_lease_and_server(self):
        reading, writing = os.pipe()
        os.set_inheritable(reading, True)
        run = start("--", "sh", "-c",
                    f"(read word <&{reading}; echo $word) & echo $!; exit 6", pass_fds=[reading])
        os.close(reading)
        child = int(run.stdout.readline())
        # The shell has gone when its child has become gpurun's.
        until(lambda: child in world.children(run.pid), "gpurun adopts it")
        server = server_of(run.pid)
        self.assertTrue(alive(server))
        self.assertIsNone(run.poll())
        os.write(writing, b"on\n")
        os.close(writing)
        rest, errors = run.communicate(timeout=world.SECONDS)
        self.assertEqual((rest, errors, run.returncode), ("on\n", "", 6))
        self.assertFalse(alive(server))

    def test_process_in_other_session_keeps_run_alive(self):
        run = start("--", "sh", "-c", "setsid sh -c 'echo $$; exec sleep 1000' & wait")
        daemon = int(run.stdout.readline())
        os.kill(world.children(run.pid)[-1], signal.SIGKILL)
        until(lambda: daemon in world.children(run.pid), "gpurun adopts it")
        self.assertIsNone(run.poll())
        os.kill(daemon, signal.SIGTERM)
        run.communicate(timeout=world.SECONDS)
        self.assertEqual(run.returncode, -signal.SIGKILL)

    def test_signal_ends_wait_for_background_processes(self):
        run = start("--", "sh", "-c", "sleep 1000 > /dev/null 2>&1 & echo $!; exit 2")
        sleeper = int(run.stdout.readline())
        until(lambda: sleeper in world.children(run.pid), "gpurun adopts it")
        run.send_signal(signal.SIGTERM)
        run.communicate(timeout=world.SECONDS)
        self.assertEqual(run.returncode, 2)
        os.kill(sleeper, signal.SIGKILL)


class ProcessDeaths(unittest.TestCase):
    def test_killed_gpurun_leaves_nothing(self):
        folder = tempfile.TemporaryDirectory()  # Other tests leave files in the machine's own folder.
        self.addCleanup(folder.cleanup)
        before = {name for name in os.listdir("/dev/shm") if "gpurun" in name}
        run = start("--", "sh", "-c", "echo $$; exec sleep 1000", env=environment(TMPDIR=folder.name))
        program = int(run.stdout.readline())
        server = server_of(run.pid)
        run.kill()
        run.wait()
        until(lambda: not alive(program), "the program ends")
        until(lambda: not alive(server), "the server ends")
        run.communicate(timeout=world.SECONDS)  # No process holds the pipes any more.
        after = {name for name in os.listdir("/dev/shm") if "gpurun" in name}
        # A worker that dies during ThreadSanitizer's preparation leaves ThreadSanitizer's file.
        files = [name for name in os.listdir(folder.name) if not name.startswith("tsan.rodata.")]
        self.assertEqual((files, after - before), ([], set()))

    def test_gpurun_killed_at_any_moment_leaves_no_children(self):
        for milliseconds in range(0, 24, 2):
            run = start("--", "sleep", "1000")
            select.select([], [], [], milliseconds / 1000)
            below = world.children(run.pid)
            run.kill()
            run.communicate(timeout=world.SECONDS)
            for pid in below:
                until(lambda pid=pid: not alive(pid), "its children end")

    def test_killed_private_server_is_reported_and_program_continues(self):
        reading, writing = os.pipe()
        run = subprocess.Popen([world.GPURUN, "--", "sh", "-c", "echo ready; read word; exit 9"],
                               stdin=reading, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               env=environment(), text=True)
        os.close(reading)
        run.stdout.readline()
        os.kill(server_of(run.pid), signal.SIGKILL)
        said = run.stderr.readline()
        self.assertIn("the private server has ended (signal 9", said)
        self.assertIn("CUDA calls fail from now on", said)
        os.close(writing)
        self.assertEqual(run.communicate(timeout=world.SECONDS), ("", ""))
        self.assertEqual(run.returncode, 9)


class SharedServers(unittest.TestCase):
    """Runs that share a server: leases are exclusive, and a run waits only when told to."""

    def test_run_uses_named_server(self):
        with world.Gpurund() as server:
            done = gpurun(*server.options(), "--", "sh", "-c", 'cat "$GPURUN_SESSION"')
            self.assertIn(f"server {server.address}\n", done.stdout)
            by_variable = environment(GPURUN_SECRET_FILE=server.secret_file)
            self.assertEqual(gpurun("-l", server.address, "--", "true", env=by_variable).returncode, 0)

    def test_second_run_is_refused_or_waits(self):
        with world.Gpurund() as server:
            first = start(*server.options(), "--", "sh", "-c", "echo ready; exec sleep 1000")
            first.stdout.readline()
            refused = gpurun(*server.options(), "--", "true")
            self.assertEqual(refused.returncode, 125)
            self.assertRegex(refused.stderr, "GPU.*--timeout")
            late = gpurun("--timeout", "100ms", *server.options(), "--", "true")
            self.assertEqual(late.returncode, 125)
            second = start("--timeout", "30s", *server.options(), "--", "echo", "granted")
            # A batch job's log contains that it waits, and the reason.
            self.assertEqual(second.stderr.readline(), f"gpurun: waiting for a free GPU of {server.address}: "
                                                       "its GPU is leased\n")
            third = start("--timeout", "30s", *server.options(), "--", "true")
            self.assertEqual(third.stderr.readline(), f"gpurun: waiting for a free GPU of {server.address}, "
                                                      "behind 1 other: its GPU is leased\n")
            quiet = start("-q", "--timeout", "30s", *server.options(), "--", "true")
            until(lambda: world.holdings(server)["waiting"] == 3, "they wait")
            self.assertIsNone(second.poll())
            first.terminate()
            first.communicate(timeout=world.SECONDS)
            self.assertEqual(second.communicate(timeout=world.SECONDS), ("granted\n", ""))
            self.assertEqual(third.communicate(timeout=world.SECONDS), ("", ""))
            self.assertEqual(quiet.communicate(timeout=world.SECONDS), ("", ""))

    def test_server_refuses_more_gpus_than_it_has(self):
        with world.Gpurund() as server:
            done = gpurun("-n", "64", "--timeout", "1h", *server.options(), "--", "true")
        self.assertEqual(done.returncode, 125)
        self.assertRegex(done.stderr, "64 GPUs wanted")

    def test_gpurun_reports_server_death(self):
        with world.Gpurund() as server:
            reading, writing = os.pipe()
            run = subprocess.Popen(
                [world.GPURUN, *server.options(), "--", "sh", "-c", "echo ready; read w; exit 9"],
                stdin=reading, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(),
                text=True)
            os.close(reading)
            run.stdout.readline()
            server.process.kill()
            self.assertIn(f"server {server.address} ended the lease", run.stderr.readline())
            os.close(writing)
            run.communicate(timeout=world.SECONDS)
            self.assertEqual(run.returncode, 9)

    def test_gpurun_reports_missing_server_and_unusable_secret(self):
        done = gpurun("-l", "127.0.0.1:1", "--", "true")
        self.assertEqual(done.returncode, 125)
        self.assertIn("no server at 127.0.0.1:1", done.stderr)
        with world.Gpurund() as server:
            done = gpurun("-l", server.address, "--", "true")
            self.assertEqual(done.returncode, 125)
            self.assertIn("--secret-file", done.stderr)
            os.chmod(server.secret_file, 0o644)
            done = gpurun(*server.options(), "--", "true")
            self.assertIn("chmod 600", done.stderr)

    def test_wrong_secret_starts_nothing(self):
        with world.Gpurund() as server, world.Gpurund() as other:
            done = gpurun("-l", server.address, "--secret-file", other.secret_file, "--", "echo", "started")
            self.assertEqual((done.returncode, done.stdout), (125, ""))
            self.assertIn(f"{server.address}: the secret is wrong", done.stderr)
            self.assertNotIn("started", done.stderr)
            self.assertEqual(gpurun(*server.options(), "--", "true").returncode, 0, "no lease is left")
        self.assertIn("the secret is wrong", server.errors)

    def test_run_uses_first_server_with_free_gpu(self):
        with world.Gpurund() as server:
            words = ["-l", f"127.0.0.1:1,{server.address}", "--secret-file", server.secret_file]
            done = gpurun(*words, "--", "sh", "-c", 'cat "$GPURUN_SESSION"')
            self.assertIn(f"server {server.address}\n", done.stdout)

    def test_run_reads_servers_from_file(self):
        with world.Gpurund() as server:
            path = os.path.join(server.folder.name, "servers")
            with open(path, "w", encoding="utf-8") as file:
                file.write(f"# the test's\n\n  {server.address}  \n")
            words = ["-s", path, "--secret-file", server.secret_file]
            self.assertEqual(gpurun(*words, "--", "true").returncode, 0)


if __name__ == "__main__":
    world.main()
