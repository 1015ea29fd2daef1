#!/usr/bin/env python3
"""Runs that name several servers: gpurun does not wait for a hopeless one, and waits for all others
at once. One line tells the user which server was skipped, and why."""
import contextlib
import os
import select
import socket
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../support"))
import world  # noqa: E402
from world import environment, until  # noqa: E402

HOLD = ("sh", "-c", "echo ready; exec sleep 1000")


def unused_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


class SeveralServers(unittest.TestCase):
    def setUp(self):
        self.stack = contextlib.ExitStack()
        self.addCleanup(self.stack.close)
        folder = self.stack.enter_context(tempfile.TemporaryDirectory())
        self.secret = os.path.join(folder, "secret")
        with open(os.open(self.secret, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="utf-8") as file:
            file.write("a secret of two servers")
        self.options = ["--secret-file", self.secret]

    def serve(self, secret="a secret of two servers", **options):
        return self.stack.enter_context(world.Gpurund(secret=secret, **options))

    def hold(self, server):
        """A run that holds the server's only GPU until it is ended."""
        holder = world.start(*server.options(), "--", *HOLD)
        self.stack.callback(self.end, holder)
        self.assertEqual(holder.stdout.readline(), "ready\n")
        return holder

    def end(self, run):
        if run.poll() is None:
            run.terminate()
        run.communicate(timeout=world.SECONDS)

    def start(self, *servers, words=("--timeout", "1h"), command=("echo", "ran")):
        names = ",".join(getattr(server, "address", server) for server in servers)
        return world.start(*words, *self.options, "-l", names, "--", *command)

    def finish(self, run):
        said, errors = run.communicate(timeout=world.SECONDS)
        return run.returncode, said, errors

    def waits(self, *servers):
        until(lambda: all(world.holdings(server)["waiting"] == 1 for server in servers), "it waits")

    def test_run_waits_for_all_servers_and_takes_first_free(self):
        first, second = self.serve(), self.serve()
        self.hold(first)
        holder = self.hold(second)
        run = self.start(first, second)
        self.waits(first, second)
        for _ in range(2):
            self.assertRegex(run.stderr.readline(), "^gpurun: waiting for a free GPU of [^\n]*\n$")
        self.end(holder)
        self.assertEqual(self.finish(run), (0, "ran\n", ""))
        self.waits_nowhere(first)

    def waits_nowhere(self, server):
        until(lambda: world.holdings(server)["waiting"] == 0, "the request was given up")

    def test_unusable_server_is_skipped_with_one_line(self):
        busy, stranger = self.serve(), self.serve(secret="a secret of another one")
        nowhere = f"127.0.0.1:{unused_port()}"
        holder = self.hold(busy)
        run = self.start(stranger, nowhere, busy)
        self.waits(busy)
        self.end(holder)
        status, said, errors = self.finish(run)
        self.assertEqual((status, said), (0, "ran\n"))
        self.assertRegex(errors, rf"^gpurun: skipped: server {stranger.address}: the secret is wrong[^\n]*\n"
                                 rf"gpurun: skipped: no server at {nowhere}: [^\n]*\n$")

    def test_server_with_too_few_gpus_is_skipped(self):
        emulated = world.DRIVERS["emulated"]
        if not os.path.exists(emulated):
            self.skipTest("this build has no emulated device")
        two = self.serve(driver=emulated,
                         env=environment(GPURUN_EMULATED="devices=2", STATE_DIRECTORY=self.secret + ".state"))
        one = self.serve()
        holder = self.hold(two)
        run = self.start(one, two, words=("--timeout", "1h", "-n", "2"))
        self.waits(two)
        self.assertEqual(world.holdings(one)["waiting"], 0)
        self.end(holder)
        status, said, errors = self.finish(run)
        self.assertEqual((status, said), (0, "ran\n"), errors)
        self.assertRegex(errors, rf"^gpurun: skipped: server {one.address}: 2 GPUs wanted[^\n]*\n$")
        # The same without a wait.
        status, said, errors = self.finish(self.start(one, two, words=("-n", "2")))
        self.assertEqual((status, said), (0, "ran\n"), errors)
        self.assertRegex(errors, "^gpurun: skipped: [^\n]* 2 GPUs wanted[^\n]*\n$")

    def test_run_keeps_waiting_after_one_server_dies(self):
        first, second = self.serve(), self.serve()
        self.hold(first)
        holder = self.hold(second)
        run = self.start(first, second)
        self.waits(first, second)
        for _ in range(2):
            self.assertRegex(run.stderr.readline(), "^gpurun: waiting for a free GPU of ")
        first.process.kill()
        # The server may be killed during its first query, before any wait.
        self.assertRegex(run.stderr.readline(),
                         f"^gpurun: skipped: (server {first.address} hung up|no server at {first.address}): ")
        self.end(holder)
        self.assertEqual(self.finish(run), (0, "ran\n", ""))

    def test_run_ends_at_once_when_all_servers_are_unusable(self):
        stranger, other = (self.serve(secret="a secret of another one") for _ in range(2))
        status, said, errors = self.finish(self.start(stranger, other))
        self.assertEqual((status, said), (125, ""))
        self.assertRegex(errors, rf"^gpurun: server {stranger.address}: [^\n]*; "
                                 rf"server {other.address}: [^\n]*\n$")

    def test_run_times_out_when_no_gpu_becomes_free(self):
        first, second = self.serve(), self.serve()
        self.hold(first)
        self.hold(second)
        status, said, errors = self.finish(self.start(first, second, words=("--timeout", "50ms")))
        self.assertEqual((status, said), (125, ""))
        self.assertRegex(errors, f"server {first.address}: its GPU is not free within the time to wait")
        self.assertRegex(errors, f"server {second.address}: its GPU is not free within the time to wait")

    def test_slow_connect_is_reported(self):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            name = "127.0.0.1:%d" % listener.getsockname()[1]
            run = self.start(name)
            connection, _ = listener.accept()
            self.assertTrue(select.select([run.stderr], [], [], world.SECONDS)[0])
            self.assertEqual(run.stderr.readline(), f"gpurun: still connecting to {name}\n")
            connection.close()
            self.assertEqual(self.finish(run)[:2], (125, ""))


class ServerPrecedence(unittest.TestCase):
    def test_named_servers_override_the_default_ones(self):
        with world.Gpurund() as server, tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "servers")
            with open(path, "w", encoding="utf-8") as file:
                file.write(server.address + "\n")
            gone = f"127.0.0.1:{unused_port()}"
            env = environment(GPURUN_SERVERS=gone)
            for words in (["-l", server.address], ["-s", path]):
                done = world.gpurun(*server.secret_options, *words, "--", "echo", "ran", env=env)
                self.assertEqual((done.returncode, done.stdout), (0, "ran\n"), done.stderr)
            done = world.gpurun(*server.secret_options, "--", "echo", "ran", env=env)
            self.assertEqual((done.returncode, done.stdout), (125, ""))
            self.assertRegex(done.stderr, f"no server at {gone}: .* The servers are those of GPURUN_SERVERS")


class MissingToken(unittest.TestCase):
    def test_message_lists_places_of_missing_token(self):
        with world.Gpurund() as server, tempfile.TemporaryDirectory() as folder:
            env = environment(XDG_CONFIG_HOME=folder, XDG_RUNTIME_DIR=folder)
            for program in ((world.GPURUN, "-l", server.address, "--", "true"),
                            (world.GPUCTL, "list", "-l", server.address)):
                done = subprocess.run(program, env=env, capture_output=True, text=True,
                                                timeout=world.SECONDS)
                self.assertEqual(done.returncode, 125)
                self.assertNotIn("secret is wrong", done.stderr)
                for said in ("wants a token, and none was found", "--token-file", "GPURUN_TOKEN_FILE",
                             f"{folder}/gpurun/tokens/{server.address}", f"{folder}/gpurun/token",
                             f"gpurun login {server.address}"):
                    self.assertIn(said, done.stderr)


if __name__ == "__main__":
    world.main()
