#!/usr/bin/env python3
"""Session folder: programs in containers use the GPU of a gpurun outside. Containers are imitated by
namespaces that the programs get without gpurun: of network, processes, mounts and users. A program
gets only what a user passes to a container: the folder, its environment file, gpurun's files.
"""
import contextlib
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../support"))
import world  # noqa: E402
from world import environment, until  # noqa: E402

PROGRAM = sys.argv.pop()
ROUNDS = "3"
CONTAINER = ["unshare", "--net", "--pid", "--fork", "--mount-proc"]
FILES = {"session", "worker-exits", "connect", "environment"}


def can(*words):
    return shutil.which(words[0]) and subprocess.run([*words, "true"], capture_output=True).returncode == 0


class SessionFolder(unittest.TestCase):
    def setUp(self):
        self.parent = tempfile.TemporaryDirectory()
        self.addCleanup(self.parent.cleanup)
        self.folder = os.path.join(self.parent.name, "run")

    @contextlib.contextmanager
    def held(self, server, *words):
        """A gpurun that holds a lease while the `with` block runs. Its program uses no GPU."""
        process = subprocess.Popen([world.GPURUN, "-q", *server.options(), "--session-folder", self.folder, *words, "--",
                                    "cat"], env=environment(), stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            until(lambda: process.poll() is not None or os.path.exists(os.path.join(self.folder, "environment")),
                  "the session folder")
            yield process
        finally:
            process.kill() if process.stdin.closed else process.stdin.close()
            process.wait(world.SECONDS)
            self.said = process.stderr.read()
            process.stderr.close()

    def inside(self, *before, folder=None, **changes):
        """The program in a container. `before` starts it."""
        env = environment(GPURUN_CLIENT_DIR=None, GPURUN_STATS="1", **changes)
        with open(os.path.join(self.folder, "environment"), encoding="utf-8") as file:
            env.update(line.rstrip("\n").split("=", 1) for line in file)
        if folder is not None:
            env["GPURUN_SESSION"] = os.path.join(folder, "session")
        return subprocess.run([*before, PROGRAM, ROUNDS], env=env, capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=4 * world.SECONDS)

    def over(self, done):
        """The transport that the program used. It has printed its statistics on stderr."""
        self.assertEqual((done.returncode, done.stdout), (0, "done\n"), done.stderr)
        found = re.search(r"(shared memory, not encrypted|TCP, not encrypted|TCP, encrypted by TLS)", done.stderr)
        self.assertIsNotNone(found, done.stderr)
        return found.group(1)

    def need(self, *words):
        if not can(*words):
            self.skipTest("no namespaces by " + " ".join(words))

    def test_program_without_network_uses_gpu_over_each_transport(self):
        self.need(*CONTAINER)
        with world.Gpurund() as server, self.held(server):
            alone = subprocess.run([*CONTAINER, "sh", "-c", "exec 3<>/dev/tcp/127.0.0.1/" + str(server.port())],
                                   capture_output=True, timeout=world.SECONDS)
            self.assertNotEqual(alone.returncode, 0)
            self.assertEqual(self.over(self.inside(*CONTAINER)), "shared memory, not encrypted")
            self.assertEqual(self.over(self.inside(*CONTAINER, GPURUN_TRANSPORTS="tcp")), "TCP, not encrypted")
            self.assertEqual(self.over(self.inside()), "shared memory, not encrypted")

    def test_program_without_network_speaks_tls_with_server(self):
        self.need(*CONTAINER)
        with world.Gpurund("--tls") as server, self.held(server, "--tls"):
            self.assertEqual(self.over(self.inside(*CONTAINER)), "TCP, encrypted by TLS")

    def test_program_in_user_namespace_and_folder_at_another_place(self):
        container = ["unshare", "--user", "--map-root-user", "--net", "--pid", "--mount", "--fork", "--mount-proc"]
        self.need(*container)
        elsewhere = os.path.join(self.parent.name, "elsewhere")
        os.mkdir(elsewhere)
        move = ["sh", "-c", f"mount --bind {self.folder} {elsewhere} && mount -t tmpfs none {self.folder} "
                            '&& exec "$0" "$@"']
        with world.Gpurund() as server, self.held(server):
            self.assertEqual(self.over(self.inside(*container, *move, folder=elsewhere)), "shared memory, not encrypted")
            hidden = self.inside(*container, *move)
            self.assertNotEqual(hidden.returncode, 0)
            self.assertIn(f"its session folder {self.folder} is not mounted here", hidden.stderr)

    def test_files_belong_to_user_alone_and_end_with_run(self):
        with world.Gpurund() as server:
            with self.held(server):
                self.assertEqual(stat.S_IMODE(os.stat(self.folder).st_mode), 0o700)
                self.assertEqual(set(os.listdir(self.folder)), FILES)
                for name in FILES:
                    self.assertEqual(stat.S_IMODE(os.lstat(os.path.join(self.folder, name)).st_mode), 0o600, name)
            self.assertFalse(os.path.exists(self.folder))
            os.mkdir(self.folder, 0o700)
            with open(os.path.join(self.folder, "mine"), "w", encoding="utf-8"):
                pass
            with self.held(server):
                pass
            self.assertEqual(os.listdir(self.folder), ["mine"])

    def test_folder_that_another_run_or_user_can_use_is_refused(self):
        def refused(words):
            done = world.gpurun("--session-folder", self.folder, "--", "true")
            self.assertEqual(done.returncode, 125, done.stderr)
            self.assertIn(words, done.stderr)
        with world.Gpurund() as server, self.held(server):
            refused("another gpurun is using it")
        os.mkdir(self.folder)
        os.chmod(self.folder, 0o750)
        refused("other users may open it, and the lease with it; chmod 700")
        self.folder = os.path.join(self.parent.name, "missing", "run")
        refused("No such file or directory")
        self.folder = os.path.join(self.parent.name, "x" * 100)
        refused("too long for a socket")
        self.folder = os.path.join(self.parent.name, "file")
        with open(self.folder, "w", encoding="utf-8"):
            pass
        refused("Not a directory")
        self.folder = ""
        refused("a folder must be named")

    def test_next_run_replaces_what_killed_run_left(self):
        with world.Gpurund() as server:
            with self.held(server) as process:
                process.send_signal(signal.SIGKILL)
                process.wait(world.SECONDS)
                self.assertEqual(set(os.listdir(self.folder)), FILES)
                dead = self.inside()
                self.assertNotEqual(dead.returncode, 0)
                self.assertIn("gpurun, which opens connections there, has ended", dead.stderr)
                process.stdin.close()
            until(lambda: world.holdings(server)["leases"] == 0, "the end of the first lease")
            with self.held(server):
                self.assertEqual(self.over(self.inside()), "shared memory, not encrypted")

    def test_processes_that_ask_nothing_or_nonsense_do_not_block_others(self):
        with world.Gpurund() as server, self.held(server), contextlib.ExitStack() as stack:
            def connect():
                one = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                stack.callback(one.close)
                one.settimeout(world.SECONDS)
                one.connect(os.path.join(self.folder, "connect"))
                return one
            silent = [connect() for _ in range(150)]
            for request in (b"\x00", b"\x03", b"\xff"):
                one = connect()
                one.send(request)
                self.assertEqual(one.recv(600), b"\x00gpurun opens no connection of this kind")
            one = connect()
            one.send(b"\x01\x01")  # Longer than a request.
            self.assertEqual(one.recv(600), b"")
            socket.send_fds(silent[-1], [b"\x09"], [0, 1, 2])
            self.assertIn(b"no connection of this kind", silent[-1].recv(600))
            self.assertEqual(self.over(self.inside()), "shared memory, not encrypted")
            self.assertEqual(silent[0].recv(600), b"")  # Gave its place to a later one.

    def test_ended_server_is_reported_by_program(self):
        with world.Gpurund() as server, self.held(server):
            server.process.kill()
            server.process.wait()
            done = self.inside()
            self.assertNotEqual(done.returncode, 0)
            self.assertRegex(done.stderr, r"gpurun: error: no CUDA device can be used: .*(connection|ended|closed)")

    def test_warning_about_containers_names_option_and_goes_with_it(self):
        shim = os.path.join(self.parent.name, "podman")
        with open(shim, "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\nexit 0\n")
        os.chmod(shim, 0o755)
        without = world.gpurun("--", shim)
        self.assertIn("podman starts programs in a container", without.stderr)
        self.assertIn("--session-folder", without.stderr)
        with_it = world.gpurun("--session-folder", self.folder, "--", shim)
        self.assertEqual(with_it.returncode, 0)
        self.assertNotIn("container", with_it.stderr)


if __name__ == "__main__":
    world.main()
