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
import struct
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
# The search for leaks fails in a process that is in another PID namespace than its parent.
NO_LEAKS = os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"
FILES = {"session", "worker-exits", "connect", "environment"}


def can(*words):
    return shutil.which(words[0]) and subprocess.run([*words, "true"], capture_output=True).returncode == 0


class SessionFolder(unittest.TestCase):
    def setUp(self):
        self.parent = tempfile.TemporaryDirectory()
        self.addCleanup(self.parent.cleanup)
        self.folder = os.path.join(self.parent.name, "run")

    @contextlib.contextmanager
    def held(self, server, *words, **changes):
        """A gpurun that holds a lease while the `with` block runs. Its program uses no GPU."""
        process = subprocess.Popen([world.GPURUN, "-q", *server.options(), "--session-folder", self.folder, *words, "--",
                                    "sh", "-c", "echo ready; exec cat"], env=environment(**changes), text=True,
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            self.assertEqual(process.stdout.readline(), "ready\n")
            yield process
        finally:
            process.kill() if process.stdin.closed else process.stdin.close()
            process.wait(world.SECONDS)
            process.stdout.close()
            process.stderr.close()

    def inside(self, *before, folder=None, **changes):
        """The program in a container. `before` starts it."""
        env = environment(GPURUN_CLIENT_DIR=None, GPURUN_STATS="1", ASAN_OPTIONS=NO_LEAKS, **changes)
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
            connect = [sys.executable, "-c", "import socket; "
                       f"socket.create_connection(('127.0.0.1', {server.port()}))"]
            self.assertEqual(subprocess.run(connect, timeout=world.SECONDS).returncode, 0)
            self.assertNotEqual(subprocess.run([*CONTAINER, *connect], capture_output=True,
                                               timeout=world.SECONDS).returncode, 0)
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

    def test_files_that_gpurun_has_not_made_stay(self):
        os.mkdir(self.folder, 0o700)
        mine = os.path.join(self.folder, "environment")
        with open(mine, "w", encoding="utf-8") as file:
            file.write("PATH=/bin\n")
        done = world.gpurun("--session-folder", self.folder, "--", "true")
        self.assertEqual(done.returncode, 125)
        self.assertIn("its file environment is not gpurun's; name an empty folder", done.stderr)
        with open(mine, encoding="utf-8") as file:
            self.assertEqual(file.read(), "PATH=/bin\n")
        self.assertEqual(os.listdir(self.folder), ["environment"])

    def test_environment_file_has_what_library_reads_and_nothing_else(self):
        set_by_user = {"CUDA_VISIBLE_DEVICES": "0", "GPURUN_TRANSPORTS": "tcp", "HOME": self.parent.name,
                       "GPURUN_STATS_FILE": "/nowhere"}
        with world.Gpurund() as server, self.held(server, **set_by_user):
            with open(os.path.join(self.folder, "environment"), encoding="utf-8") as file:
                lines = dict(line.rstrip("\n").split("=", 1) for line in file)
        # An image has an LD_LIBRARY_PATH of its own.
        self.assertEqual(set(lines) - {"GPURUN_CACHE"},
                         {"LD_PRELOAD", "GPURUN_SESSION", "CUDA_VISIBLE_DEVICES", "GPURUN_TRANSPORTS"})
        self.assertEqual(lines["CUDA_VISIBLE_DEVICES"], "0")
        broken = world.gpurun("--session-folder", self.folder, "--", "true",
                              env=environment(CUDA_VISIBLE_DEVICES="0\nLD_AUDIT=/tmp/x.so"))
        self.assertEqual(broken.returncode, 125)
        self.assertIn("CUDA_VISIBLE_DEVICES has a line break", broken.stderr)

    def test_program_without_network_and_folder_is_told_what_to_mount(self):
        self.need("unshare", "--net")
        with world.Gpurund() as server:
            env = environment(ASAN_OPTIONS=NO_LEAKS)
            done = world.gpurun("-q", *server.options(), "--", "unshare", "--net", PROGRAM, ROUNDS, env=env)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("another network namespace than gpurun: start gpurun there, or give it a --session-folder",
                          done.stderr)
            done = world.gpurun("-q", *server.options(), "--", "unshare", "--pid", "--fork", "--mount-proc", PROGRAM, ROUNDS,
                                env=env)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("give gpurun a --session-folder and mount that folder here", done.stderr)

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
            for request in (struct.pack("=II", kind, 1000) for kind in (0, 3, 0xffffffff)):
                one = connect()
                one.send(request)
                self.assertEqual(one.recv(600), b"\x00gpurun opens no connection of this kind")
            one = connect()
            one.send(b"\x01")  # Shorter than a request.
            self.assertIn(b"no connection of this kind", one.recv(600))
            one = connect()
            one.send(struct.pack("=III", 1, 1000, 1))  # Longer.
            self.assertEqual(one.recv(600), b"")
            socket.send_fds(silent[-1], [b"\x09"], [0, 1, 2])
            self.assertIn(b"no connection of this kind", silent[-1].recv(600))
            one = connect()
            one.send(struct.pack("=II", 1, 1000))
            one.close()  # The process goes before gpurun answers it.
            self.assertEqual(self.over(self.inside()), "shared memory, not encrypted")
            silent[0].setblocking(False)
            self.assertEqual(silent[0].recv(600), b"")  # Gave its place to a later one.

    # The socket's close would wait for the bytes of a connection that came with a second message.
    def test_descriptor_that_lingers_does_not_block_others(self):
        with world.Gpurund() as server, self.held(server), socket.create_server(("127.0.0.1", 0)) as listener:
            far = socket.create_connection(listener.getsockname())
            near, _ = listener.accept()
            with far, near:
                near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 3600))
                near.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    while True:
                        near.send(bytes(1 << 16))
                one = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                one.connect(os.path.join(self.folder, "connect"))
                socket.send_fds(one, [struct.pack("=II", 0, 0)], [near.fileno()])
                # gpurun answers the first and closes, before or after the second has come.
                with contextlib.suppress(ConnectionResetError, BrokenPipeError):
                    socket.send_fds(one, [struct.pack("=II", 0, 0)], [near.fileno()])
                    self.assertIn(b"no connection", one.recv(600))
                near.close()
                one.close()
                self.assertEqual(self.over(self.inside()), "shared memory, not encrypted")

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
