#!/usr/bin/env python3
"""gpuctl netperf: each transport is measured by a session that uses it, other transports have a reason, and what
cannot be measured is an error in one line."""
import json
import os
import pty
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../support"))
import world  # noqa: E402
from world import environment, start  # noqa: E402

SHORT = ("--seconds", "0.3")


def netperf(*words, env=None, **options):
    return subprocess.run([world.GPUCTL, "netperf", *words], env=env or environment(), capture_output=True, text=True,
                          timeout=6 * world.SECONDS, stdin=subprocess.DEVNULL, **options)


class AsymmetricLink:
    """A TCP relay with a limit for each direction, which holds for all connections together."""

    def __init__(self, port, bytes_per_s_to, bytes_per_s_from):
        self.port = port
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.limits = [[threading.Lock(), 0.0, speed] for speed in (bytes_per_s_to, bytes_per_s_from)]

    def __enter__(self):
        threading.Thread(target=self.accept, daemon=True).start()
        return "127.0.0.1:%d" % self.listener.getsockname()[1]

    def __exit__(self, *_):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()

    def accept(self):
        while True:
            try:
                client = self.listener.accept()[0]
            except OSError:
                return  # The link has ended.
            threading.Thread(target=self.join, args=(client,), daemon=True).start()

    def join(self, client):
        with client, socket.create_connection(("127.0.0.1", self.port)) as server:
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            back = threading.Thread(target=self.relay, args=(server, client, self.limits[1]), daemon=True)
            back.start()
            self.relay(client, server, self.limits[0])
            back.join()

    def relay(self, source, target, limit):
        try:
            while piece := source.recv(1 << 14):
                with limit[0]:
                    limit[1] = max(limit[1], time.monotonic()) + len(piece) / limit[2]
                    time.sleep(max(0, limit[1] - time.monotonic()))
                target.sendall(piece)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # The other direction has ended both.


class Netperf(unittest.TestCase):
    def measured(self, server, *words, **changes):
        # It listens beyond this machine, so it also speaks TLS.
        address = f"127.0.0.1:{server.port()}"
        done = netperf("--json", *SHORT, "--secret-file", server.secret_file, *words, address,
                       env=environment(**changes))
        self.assertEqual((done.returncode, re.sub(r"(?m)^gpuctl: met .*\n", "", done.stderr)), (0, ""))
        report = json.loads(done.stdout)
        self.assertEqual(report["server"], address)
        return {each["transport"]: each for each in report["transports"]}

    def check_figures(self, one):
        trip = one["round_trip_us"]
        self.assertTrue(0 < trip["p50"] <= trip["p90"] <= trip["p99"] <= trip["max"], trip)
        self.assertGreater(trip["count"], 10)
        self.assertGreater(one["result_us"]["p50"], 0)
        self.assertGreater(one["calls_per_second"], 1000)
        for way in ("to_device_gb_per_second", "from_device_gb_per_second"):
            self.assertTrue(all(one[way][kind] > 0 for kind in ("pinned", "pageable")), one)
        self.assertIn(one["verdict"]["round_trip"], ("ok", "slow"))

    def test_each_transport_is_measured_by_session_that_uses_it(self):
        with world.Gpurund("--listen", "0.0.0.0:0") as server:
            found = self.measured(server)
        self.assertEqual([name for name, one in found.items() if one["available"]], ["shm", "tcp", "tls"])
        for name, session in (("shm", "shared memory, not encrypted"), ("tcp", "TCP, not encrypted"),
                              ("tls", "TCP, encrypted by TLS")):
            self.assertTrue(found[name]["session"].startswith(session), found[name])
            self.check_figures(found[name])
        self.assertEqual([found[name]["verdict"]["link"] for name in ("shm", "tcp", "tls")], [None, "unknown", "unknown"])
        self.assertRegex(found["rdma"]["reason"], "the user trusts no fabric|RDMA is not built in")
        self.assertIsNone(found["rdma"]["round_trip_us"])

    def test_options_and_variables_leave_transports_out(self):
        with world.Gpurund("--listen", "0.0.0.0:0") as server:
            encrypted = self.measured(server, "--tls")
            by_tcp = self.measured(server, GPURUN_TRANSPORTS="tcp")
        self.assertEqual([name for name, one in encrypted.items() if one["available"]], ["tls"])
        self.assertIn("--tls", encrypted["shm"]["reason"])
        self.assertEqual([name for name, one in by_tcp.items() if one["available"]], ["tcp", "tls"])
        self.assertIn("GPURUN_TRANSPORTS", by_tcp["shm"]["reason"])

    def test_server_without_certificate_is_not_measured_by_tls(self):
        with world.Gpurund() as server:
            done = netperf("--json", *SHORT, *server.options(), env=environment(GPURUN_TRANSPORTS="tcp"))
            world.until(lambda: world.holdings(server)["leases"] == 0, "no lease is left")
        self.assertEqual(done.returncode, 0, done.stderr)
        found = {each["transport"]: each for each in json.loads(done.stdout)["transports"]}
        self.assertTrue(found["tcp"]["available"])
        self.assertIn("refuses TLS", found["tls"]["reason"])

    def test_delay_of_link_is_measured(self):
        with world.Gpurund() as server, world.DelayedLink(server.port(), 0.005) as link:
            done = netperf("--json", *SHORT, "--secret-file", server.secret_file, "-l", link.address)
        self.assertEqual(done.returncode, 0, done.stderr)
        found = {each["transport"]: each for each in json.loads(done.stdout)["transports"]}
        # The session itself finds out that a relay leads to the server.
        self.assertIn("reached through something else", found["shm"]["reason"])
        trip = found["tcp"]["round_trip_us"]
        self.assertTrue(5_000 < trip["p50"] < 1_000_000, trip)
        self.assertEqual(found["tcp"]["verdict"]["round_trip"], "slow")

    def test_each_direction_of_a_link_is_measured_by_itself(self):
        slow, quick = 1 << 20, 16 << 20  # Bytes a second, to the server and from it.
        with world.Gpurund() as server, AsymmetricLink(server.port(), slow, quick) as address:
            done = netperf("--json", "--seconds", "2", "--secret-file", server.secret_file, "-l", address)
        self.assertEqual(done.returncode, 0, done.stderr)
        tcp = {each["transport"]: each for each in json.loads(done.stdout)["transports"]}["tcp"]
        for way, speed in (("to_device_gb_per_second", slow), ("from_device_gb_per_second", quick)):
            for kind in ("pinned", "pageable"):
                self.assertLess(tcp[way][kind], 1.2 * speed / 1e9, tcp)
        self.assertGreater(tcp["from_device_gb_per_second"]["pinned"], 2 * tcp["to_device_gb_per_second"]["pinned"], tcp)

    def test_table_names_transports_and_verdicts(self):
        with world.Gpurund() as server:
            done = netperf(*SHORT, *server.options(), env=environment(GPURUN_TRANSPORTS="shm"))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertRegex(done.stdout, rf"^{server.address}, gpurun \d+\.\d+\.\d+, by lo, of unknown speed\n")
        self.assertRegex(done.stdout, r"(?m)^shared memory +[\d.]+ +[\d.]+ +[\d.]+ +[\d.]+ +[\d.]+ +[\d,]+( +[\d.]+){4}$")
        self.assertRegex(done.stdout, r"(?m)^shared memory: (ok|slow): half of the round trips take at most [\d.]+ us")
        self.assertRegex(done.stdout, r"(?m)^TCP: not measured: GPURUN_TRANSPORTS leaves it out$")

    def test_terminal_shows_progress(self):
        with world.Gpurund() as server:
            ours, theirs = pty.openpty()
            run = subprocess.Popen([world.GPUCTL, "netperf", *SHORT, *server.options()], stdout=subprocess.PIPE,
                                   stderr=theirs, stdin=subprocess.DEVNULL, env=environment(GPURUN_TRANSPORTS="shm"))
            os.close(theirs)
            shown = b""
            while True:
                try:
                    piece = os.read(ours, 4096)
                except OSError:
                    break  # The last holder of the terminal's other end has gone.
                if not piece:
                    break
                shown += piece
            run.communicate(timeout=world.SECONDS)
            os.close(ours)
        self.assertEqual(run.returncode, 0)
        self.assertIn(b"shared memory: measurement 1 of 7", shown)

    def refused(self, status, pattern, *words, env=None):
        done = netperf(*SHORT, *words, env=env)
        self.assertEqual((done.returncode, done.stdout), (status, ""), done.stderr)
        self.assertRegex(done.stderr, rf"^gpuctl: [^\n]*{pattern}[^\n]*\n$")

    def test_failures_have_clear_lines(self):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            gone = "127.0.0.1:%d" % listener.getsockname()[1]
        self.refused(125, f"no server at {gone}", gone)
        self.refused(125, "cannot find host", "no-such-host.invalid")
        self.refused(2, "a:b", "a:b")
        self.refused(2, "--seconds", "--seconds", "0", gone)
        self.refused(2, "names no server", "-l", "none")
        self.refused(2, "GPURUN_SERVERS names no server, by the word none", env=environment(GPURUN_SERVERS="none"))
        self.refused(2, "--link-mbit", "--link-mbit", "0", gone)
        self.refused(2, "excludes", "-l", gone, gone)
        with world.Gpurund() as server, tempfile.TemporaryDirectory() as folder:
            self.refused(125, "wants a token", server.address, env=environment(XDG_RUNTIME_DIR=folder))
            run = start(*server.options(), "--", "sh", "-c", "echo ready; exec sleep 1000")
            run.stdout.readline()
            self.refused(125, "no GPU of .* is free", *server.options())
            run.kill()
            run.communicate(timeout=world.SECONDS)

    def test_broken_client_is_the_reason(self):
        with world.Gpurund() as server, tempfile.TemporaryDirectory() as folder:
            done = netperf(*SHORT, *server.options(), env=environment(GPURUN_CLIENT_DIR=folder))
        self.assertEqual(done.returncode, 125)
        self.assertRegex(done.stdout, r"shared memory: not measured: .*libcuda.so.1 is missing")
        self.assertRegex(done.stderr, r"^gpuctl: no transport to \S+ could be measured\n$")


if __name__ == "__main__":
    world.main()
