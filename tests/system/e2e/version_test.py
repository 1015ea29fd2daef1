#!/usr/bin/env python3
"""Messages to users and operators when the other side has another version, or is not a gpurund.
Each such run ends in time, with 125 or a CUDA error, and one line with the remedy."""
import contextlib
import os
import re
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../support"))
import world  # noqa: E402
from world import environment, gpurun  # noqa: E402

OTHER = os.path.join(world.ARGS.build, "tests/other_version")
SECRET = "of a server that this test plays"
DEVICE_UNAVAILABLE = 46  # CUDA_ERROR_DEVICE_UNAVAILABLE
HANDSHAKE_S = 10  # limits::kHandshakeDeadlineS
# For everything except the wait, because processes start slowly under a sanitizer.
START_S = 8


def our_protocol():
    printed = subprocess.run([world.GPURUN, "--version"], env=environment(), capture_output=True, text=True,
                             timeout=world.SECONDS, check=True).stdout
    return int(re.search(r"\(protocol (\d+), ", printed).group(1))


OURS = our_protocol()


@contextlib.contextmanager
def other_server(*way):
    """Starts a gpurund of another version that behaves in that way. Yields its address."""
    with subprocess.Popen([OTHER, "serve", SECRET, *way], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True, env=environment()) as process:
        try:
            yield process.stdout.readline().strip()
        finally:
            process.stdin.close()
            process.wait(world.SECONDS)


@contextlib.contextmanager
def other_server_in_tls(*way):
    """As other_server(), but in TLS, where a control link does not wait for an answer. Also yields
    the options that lead to it."""
    with subprocess.Popen([OTHER, "serve-tls", SECRET, *way], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True, env=environment()) as process:
        try:
            address, fingerprint = (process.stdout.readline().strip() for _ in range(2))
            yield address, ("--tls", "--server-fingerprint", fingerprint)
        finally:
            process.stdin.close()
            process.wait(world.SECONDS)


@contextlib.contextmanager
def stranger(serve):
    """A listener that is not a gpurund. It calls `serve(connection)` for each connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener, contextlib.ExitStack() as kept:
        def accept():
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    kept.enter_context(connection)
                    with contextlib.suppress(OSError):
                        serve(connection)

        threading.Thread(target=accept, daemon=True).start()
        yield "127.0.0.1:%d" % listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


class ClientMessages(unittest.TestCase):
    """gpurun and the program."""

    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.secret = os.path.join(holder.name, "secret")
        with open(os.open(self.secret, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="ascii") as file:
            file.write(SECRET)

    def run_at(self, address, *command, tls=()):
        begin = time.monotonic()
        done = gpurun(*tls, "-l", address, "--secret-file", self.secret, "--", *command)
        return done, time.monotonic() - begin

    def refused(self, address, pattern, least=0.0, tls=()):
        done, seconds = self.run_at(address, "echo", "ran", tls=tls)
        self.assertEqual((done.returncode, done.stdout), (125, ""), done.stderr)
        said = re.sub(r"^gpurun: still connecting to [^\n]*\n", "", done.stderr)
        self.assertRegex(said, rf"^gpurun: server {re.escape(address)}\b.*{pattern}.*\n$")
        self.assertGreaterEqual(seconds, least)
        self.assertLess(seconds, least + START_S)

    def test_version_mismatch_names_side_to_update(self):
        for theirs, side in ((OURS - 1, "server"), (OURS + 1, "client")):
            with other_server("challenge", str(theirs)) as address:
                self.refused(address, rf"the server speaks protocol {theirs} \(gpurun 7\.7\.7\), "
                                      rf"this client protocol {OURS} .*: update the {side}")
                listed = subprocess.run([world.GPUCTL, "list", "-l", address], env=environment(),
                                        capture_output=True, text=True, timeout=world.SECONDS)
                self.assertNotEqual(listed.returncode, 0)
                self.assertRegex(listed.stderr, f"protocol {theirs} .*: update the {side}")

    def test_version_mismatch_inside_tls_names_side_to_update(self):
        for theirs, side in ((OURS - 1, "server"), (OURS + 1, "client")):
            with other_server_in_tls("challenge", str(theirs)) as (address, tls):
                self.refused(address, rf"the server speaks protocol {theirs} \(gpurun 7\.7\.7\), "
                                      rf"this client protocol {OURS} .*: update the {side}", tls=tls)
                listed = subprocess.run([world.GPUCTL, "list", *tls, "-l", address], env=environment(),
                                        capture_output=True, text=True, timeout=world.SECONDS)
                self.assertNotEqual(listed.returncode, 0)
                self.assertRegex(listed.stderr, f"protocol {theirs} .*: update the {side}")

    def test_gpurun_prints_refusal_message_of_server(self):
        words = "the client speaks protocol 3, this server protocol 2: update the server"
        with other_server("refuse", words) as address:
            self.refused(address, words)
        with other_server_in_tls("refuse", words) as (address, tls):
            self.refused(address, words, tls=tls)

    def test_gpurun_skips_server_of_other_version(self):
        with other_server("challenge", str(OURS + 1)) as other, world.Gpurund() as server:
            done = gpurun(*server.secret_options, "-l", f"{other},{server.address}", "--",
                          world.ARGS.client, "once")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertRegex(done.stderr, rf"^gpurun: skipped: server {re.escape(other)}: the server speaks "
                                          rf"protocol {OURS + 1} [^\n]*\n$")

    def test_gpurun_does_not_wait_for_server_of_other_version(self):
        # The other server comes first. With TLS it shows its version only after a request for a
        # GPU.
        with (other_server_in_tls("challenge", str(OURS + 1)) as (other, _),
              tempfile.TemporaryDirectory() as home, world.Gpurund("--tls", secret=SECRET) as server):
            words = ("--tls", "--secret-file", self.secret)
            surroundings = environment(XDG_CONFIG_HOME=home)
            holder = subprocess.Popen([world.GPURUN, *words, "-l", server.address, "--", "cat"],
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                      stderr=subprocess.DEVNULL, env=surroundings)
            with holder:
                holder.stdin.write(b"held\n")
                holder.stdin.flush()
                self.assertEqual(holder.stdout.readline(), b"held\n")
                done = gpurun(*words, "--timeout", "1s", "-l", f"{other},{server.address}", "--", "true",
                              env=surroundings)
                holder.stdin.close()
            self.assertEqual(done.returncode, 125)
            self.assertIn(f"server {server.address}: its GPU is not free within the time to wait", done.stderr)

    def attached(self, way, pattern):
        with other_server(*way) as address:
            done, seconds = self.run_at(address, world.ARGS.client, "where")
        self.assertEqual(done.returncode, DEVICE_UNAVAILABLE, done.stderr)
        self.assertRegex(done.stderr, pattern)
        self.assertLess(seconds, START_S)

    def test_program_reports_attach_refusal_of_server(self):
        words = "the client speaks protocol 3, this server protocol 2: update the server"
        self.attached(("refuse-attach", words), rf"gpurun: .*server 127\.0\.0\.1:\d+: {words}")

    def test_program_reports_unsupported_required_feature(self):
        self.attached(("require",), r"gpurun: .*server 127\.0\.0\.1:\d+: the server \(gpurun 7\.7\.7\) "
                                    r"requires feature 63, .*: update the client")

    def test_gpurun_reports_peer_that_is_not_gpurund(self):
        def http(connection):
            connection.recv(4096)
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
            connection.close()

        def reset(connection):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()

        def ssh(connection):
            connection.sendall(b"SSH-2.0-OpenSSH_9.2p1\r\n")

        for serve, pattern in ((http, "not gpurun's protocol; is it a gpurund"),
                               (ssh, "not gpurun's protocol; is it a gpurund"),
                               (socket.socket.close, "hung up: .*; is it a gpurund"),
                               (reset, "hung up: .*; is it a gpurund")):
            with stranger(serve) as address:
                self.refused(address, pattern)

    def test_silent_peer_times_out(self):
        with stranger(lambda connection: None) as address:
            self.refused(address, "does not answer in time; is it a gpurund", least=HANDSHAKE_S)


class ServerMessages(unittest.TestCase):
    """gpurund, with clients of another version."""

    def ask(self, what, theirs):
        with world.Gpurund(*(("--tls",) if what == "hello-tls" else ())) as server:
            done = subprocess.run([OTHER, what, str(theirs), server.address], env=environment(),
                                  capture_output=True, text=True, timeout=world.SECONDS)
        return done.stdout, server.errors

    def test_both_sides_report_side_to_update(self):
        for what in ("hello", "hello-tls", "attach"):
            for theirs, side in ((OURS - 1, "client"), (OURS + 1, "server")):
                answer, log = self.ask(what, theirs)
                sentence = (rf"the client speaks protocol {theirs} \(gpurun 7\.7\.7\), this server "
                            rf"protocol {OURS} \(gpurun [0-9.]+\): update the {side}")
                self.assertRegex(answer, rf"^refused: {sentence}\n$")
                self.assertRegex(log, rf"warning.* tcp 127\.0\.0\.1:\d+ .*{sentence}")


if __name__ == "__main__":
    world.main()
