#!/usr/bin/env python3
"""Spare workers that wait for a lease (docs/adr/0034), seen from outside by their process ids. A
session gets one, and the next one starts soon. None serves twice or outlives its daemon. A broken
driver causes no restart loop, and a session works whenever one of them dies."""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../support"))
import world  # noqa: E402
from world import alive, environment, gpurun, until  # noqa: E402
from world.processes import is_spare, name_of  # noqa: E402

WRONG_USAGE = 2
LEVELS = ("mapped", "initialised")


class Program:
    """A program that holds a context on `server` until it is told to end. `late`: it begins when it
    is told to, and then ends by itself."""

    def __init__(self, server, *words, late=False):
        begin = ["sh", "-c", 'read -r line && exec "$@"', "sh"] if late else []
        self.run = subprocess.Popen(
            [world.GPURUN, "-q", *words, *server.options(), "--", *begin, world.ARGS.client,
             "once" if late else "wait"],
            env=client_environment(server), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True)
        if not late:
            said = self.run.stdout.readline()
            assert said == "ready\n", said + self.run.communicate(timeout=world.SECONDS)[1]

    def end(self):
        """Exit status and output."""
        said, errors = self.run.communicate("\n", timeout=world.SECONDS)
        return self.run.returncode, said, world.without_meeting(errors)


def client_environment(server):
    """Known servers are stored in a folder of the test."""
    return environment(XDG_CONFIG_HOME=os.path.join(server.folder.name, "config"))


def words_of(pid):
    with open(f"/proc/{pid}/cmdline", encoding="utf-8") as file:
        return set(file.read().split("\0"))


def waiting(server, count=1):
    """The process ids of the waiting workers, once there are so many."""
    until(lambda: len(server.spares()) == count, f"{count} workers wait for a lease")
    return server.spares()


class SpareDetection(unittest.TestCase):
    """The helpers of these tests: they classify a process correctly right after its exec."""

    def test_is_spare_detects_worker_right_after_exec(self):
        reading, writing = os.pipe()
        for _ in range(200):
            pid = os.fork()
            if pid == 0:
                try:
                    os.dup2(reading, 0)
                    os.execl("/bin/sh", "gpurun-worker", "-c", "read word", "--spare")
                finally:
                    os._exit(127)
            try:
                looks = 0
                while name_of(pid) != "sh" and looks < 1_000_000:  # Just then it has no words yet.
                    looks += 1
                self.assertTrue(all(is_spare(pid) for _ in range(20)))
            finally:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            self.assertFalse(is_spare(pid), "it is over")
        os.close(reading)
        os.close(writing)


class SpareWorkers(unittest.TestCase):
    def test_session_takes_spare_and_next_spare_starts(self):
        for level in LEVELS:
            for security in ((), ("--tls",)):
                words = ("--spare-workers", "1", "--spare-level", level, *security)
                with self.subTest(words=words), world.Gpurund(*words) as server:
                    served = set()
                    for _ in range(3):
                        spares = waiting(server)
                        program = Program(server, *security)
                        self.assertEqual(server.workers(), spares)
                        self.assertNotEqual(waiting(server), spares)
                        self.assertEqual(program.end(), (0, "", ""))
                        until(lambda: not server.workers(), "the worker ends with its session")
                        served.update(spares)
                    self.assertEqual(len(served), 3, "none serves twice")

    def test_further_process_of_lease_takes_spare(self):
        with world.Gpurund() as server:
            (first,) = waiting(server)
            # A shell gives its background processes an empty input, which would end this one.
            never, held = os.pipe()
            both = subprocess.Popen(
                [world.GPURUN, "-q", *server.options(), "--", "sh", "-c",
                 f'"$0" wait <&{never} & read -r line; "$0" once; echo between; wait',
                 world.ARGS.client],
                env=client_environment(server), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, text=True, pass_fds=[never])
            os.close(never)
            self.assertEqual(both.stdout.readline(), "ready\n")
            self.assertEqual(server.workers(), [first])
            (second,) = waiting(server)
            both.stdin.write("\n")
            both.stdin.flush()
            self.assertEqual(both.stdout.readline(), "between\n")
            os.close(held)
            both.communicate(timeout=world.SECONDS)
            until(lambda: not alive(second), "the second session has had it")

    def test_unused_spare_ends_with_its_lease(self):
        for level in LEVELS:
            with self.subTest(level=level), world.Gpurund("--spare-level", level) as server:
                (spare,) = waiting(server)
                done = gpurun("-q", *server.options(), "--", "true")
                self.assertEqual(done.returncode, 0, done.stderr)
                until(lambda pid=spare: not alive(pid), "it goes with the lease")
                self.assertNotIn(spare, waiting(server))

    def test_death_of_waiting_spare_is_harmless(self):
        for level in LEVELS:
            with self.subTest(level=level), world.Gpurund("--spare-level", level) as server:
                for spare in waiting(server):
                    os.kill(spare, signal.SIGKILL)
                    until(lambda pid=spare: not alive(pid), "it has died")
                self.assertEqual(Program(server).end(), (0, "", ""))
                waiting(server)
                self.assertRegex(server.log(), r"a spare worker ended: signal 9 \(Killed\); the next one")

    def test_spare_death_between_lease_and_session_is_harmless(self):
        for level in LEVELS:
            with self.subTest(level=level), world.Gpurund("--spare-level", level) as server:
                (spare,) = waiting(server)
                program = Program(server, late=True)
                # Only the lease is visible, because an initialised worker receives nothing before
                # its session.
                until(lambda: holds(server, "leases") == 1, "the lease has begun")
                until(lambda: spare in server.workers() or holds(server, "spare_workers") == 0,
                      "the lease has it")
                os.kill(spare, signal.SIGKILL)
                until(lambda: not alive(spare), "it has died")
                self.assertEqual(program.end(), (0, "", ""))

    def test_broken_driver_backs_off_spare_restarts(self):
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o755)
            driver = os.path.join(folder, "libcuda.so.1")
            shutil.copy(world.ARGS.driver, driver)
            with world.Gpurund(driver=driver) as server:
                (spare,) = waiting(server)
                broken = driver + ".new"
                with open(broken, "wb") as file:
                    file.write(b"no library")
                os.chmod(broken, 0o755)
                os.replace(broken, driver)
                os.kill(spare, signal.SIGKILL)
                until(lambda: "starts in 800 ms" in server.log(), "a wait of 800 ms")
                # Each delay is twice the one before, however many there have been by now.
                ends = re.findall(r"a spare worker ended.*starts in (\d+) ms", server.log())
                self.assertEqual(ends, [str(200 << place) for place in range(len(ends))])
                failed = gpurun("-q", *server.options(), "--", world.ARGS.client, "once")
                self.assertNotEqual(failed.returncode, 0)
                self.assertIn("libcuda.so.1", failed.stderr)
                shutil.copy(world.ARGS.driver, broken)
                os.replace(broken, driver)
                done = gpurun("-q", *server.options(), "--", world.ARGS.client, "once")
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                waiting(server)

    def test_spares_end_with_daemon(self):
        for words in ((), ("--spare-level", "initialised"), ("--worker-uids", "none"),
                      ("--worker-uids", "none", "--confinement", "none")):
            for end in (signal.SIGKILL, signal.SIGTERM):
                with self.subTest(words=words, end=end), \
                        world.Gpurund("--spare-workers", "3", *words) as server:
                    spares = waiting(server, 3)
                    server.process.send_signal(end)
                    until(lambda pids=spares: not any(map(alive, pids)), "they end")

    def test_spares_keep_no_file_system_mounted(self):
        with tempfile.TemporaryDirectory() as folder:
            apart = ["unshare", "--mount", "--propagation", "shared", "sh", "-c",
                     f'mount -t tmpfs gpurun-test "{folder}" && exec "$@"', "sh"]
            if subprocess.run([*apart, "true"], capture_output=True).returncode != 0:
                self.skipTest("cannot mount here")
            with world.Gpurund(before=apart) as server:
                (spare,) = waiting(server)
                if "network" not in holds(server, "confinement"):
                    self.skipTest("workers have no mounts of their own here")
                until(lambda: has_mapped(spare, "libcuda.so.1"), "it is apart, and waits")
                self.assertNotEqual(namespace(spare), namespace(server.process.pid))
                self.assertTrue(has_mounted(spare, folder))
                subprocess.run(["nsenter", "-t", str(server.process.pid), "-m", "umount", folder],
                               check=True, timeout=world.SECONDS)
                self.assertFalse(has_mounted(spare, folder))
                self.assertEqual(Program(server).end(), (0, "", ""))

    def test_zero_spare_workers_starts_no_spares(self):
        with world.Gpurund("--spare-workers", "0") as server:
            program = Program(server)
            (worker,) = server.workers()
            self.assertFalse({"--spare", "--taken"} & words_of(worker), "it was started for its lease")
            self.assertEqual(server.spares(), [])
            self.assertEqual(holds(server, "spare_workers"), 0)
            self.assertEqual(program.end(), (0, "", ""))

    def test_private_server_has_no_spares(self):
        private = subprocess.Popen([world.GPURUN, "-q", "--", world.ARGS.client, "wait"],
                                   env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        said = private.stdout.readline()
        if said != "ready\n":
            self.skipTest("no private server here: " + private.communicate(timeout=world.SECONDS)[1])
        workers = [pid for pid in world.children(world.server_of(private.pid))
                   if name_of(pid) == "gpurun-worker"]
        self.assertEqual(len(workers), 1)
        self.assertFalse({"--spare", "--taken"} & words_of(workers[0]), "it was started for its lease")
        private.communicate("\n", timeout=world.SECONDS)

    def test_gpuctl_list_counts_spares(self):
        with world.Gpurund("--spare-workers", "2") as server:
            waiting(server, 2)
            until(lambda: holds(server, "spare_workers") == 2, "they are listed")
            self.assertEqual(holds(server, "workers"), 0)

    def test_invalid_spare_options_stop_server(self):
        for words, said in ((("--spare-workers", "65"), "spare-workers is 65; it may be 0 to 64"),
                            (("--spare-workers", "-1"), "spare-workers"),
                            (("--spare-level", "context"),
                             "spare-level is 'context'; it may be mapped or initialised")):
            with self.subTest(words=words):
                server = world.Gpurund(*words)
                with server:
                    self.assertEqual(server.process.wait(world.SECONDS), WRONG_USAGE)
                self.assertIn(said, server.errors)

    def test_file_sets_spare_count_and_level(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "gpurund.toml")
            uids = "" if world.can_lend_users() else 'worker-uids = "none"\n'
            for text, said in ((f'{uids}spare-workers = 2\nspare-level = "initialised"\n', None),
                               ("spare-workers = -1\n", ":1: 'spare-workers' must be a number from 0 up"),
                               ("spare-level = 1\n", ":1: 'spare-level' must be a text in quotes")):
                with open(path, "w", encoding="utf-8") as file:
                    file.write(text)
                with self.subTest(text=text):
                    server = world.Gpurund("--config", path, "--tokens", "none", "--audit", "none")
                    with server:
                        if said is None:
                            waiting(server, 2)
                        else:
                            self.assertEqual(server.process.wait(world.SECONDS), WRONG_USAGE)
                    self.assertIn(said or "", server.errors)


def namespace(pid):
    return os.readlink(f"/proc/{pid}/ns/mnt")


def has_mapped(pid, name):
    with open(f"/proc/{pid}/maps", encoding="utf-8") as file:
        return any(line.rstrip().endswith("/" + name) for line in file)


def has_mounted(pid, folder):
    with open(f"/proc/{pid}/mounts", encoding="utf-8") as file:
        return any(line.split()[1] == os.path.realpath(folder) for line in file)


def holds(server, what):
    listed = subprocess.run([world.GPUCTL, "list", "--json", *server.options()], env=environment(),
                            capture_output=True, text=True, check=True, timeout=world.SECONDS)
    return json.loads(listed.stdout)[what]


if __name__ == "__main__":
    world.main()
