#!/usr/bin/env python3
"""Transports: the user sees which one a session uses, and the program cannot tell. Shared memory
with a server of this machine, TCP where that is not possible or not wanted, TLS where it is
requested.
"""
import os
import re
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../support"))
import world  # noqa: E402

PROGRAM = sys.argv.pop()
ROUNDS = "25"


class Transports(unittest.TestCase):
    def over(self, server, words=(), command=None, **options):
        done = world.measured(server, command or [PROGRAM, ROUNDS], words=words, **options)
        self.assertEqual((done.status, done.stdout, world.without_meeting(done.stderr)), (0, "done\n", ""))
        (statistics,) = done.statistics
        return statistics["transport"]

    def test_local_server_uses_shared_memory(self):
        with world.Gpurund() as server:
            self.assertEqual(self.over(server), "shared memory, not encrypted")
            self.assertEqual(self.over(server, GPURUN_TRANSPORTS="shm"), "shared memory, not encrypted")

    def test_variable_selects_transport(self):
        with world.Gpurund() as server:
            for allowed in ("tcp", "tcp,shm"):
                self.assertEqual(self.over(server, GPURUN_TRANSPORTS=allowed), "TCP, not encrypted")

    def test_relay_rules_out_shared_memory(self):
        with world.Gpurund() as server, world.DelayedLink(server.port(), 0.001) as link:
            self.assertRegex(self.over(server, address=link.address),
                             r"TCP, not encrypted \(no shared memory: .* is reached through something else\)")
            done = world.measured(server, [PROGRAM, ROUNDS], address=link.address, GPURUN_TRANSPORTS="shm")
            self.assertNotEqual(done.status, 0)
            self.assertRegex(done.stderr, r"GPURUN_TRANSPORTS allows shared memory only, which is not available")

    def test_tls_option_rules_out_shared_memory(self):
        with world.Gpurund("--tls") as server:
            self.assertEqual(self.over(server, words=["--tls"]),
                             "TCP, encrypted by TLS (no shared memory: the session is encrypted)")

    # A process that may not write a file of that size may not create shared memory of it either.
    def test_file_size_limit_falls_back_to_local_socket(self):
        with world.Gpurund() as server:
            limited = ["sh", "-c", 'ulimit -f 100; exec "$0" "$@"', PROGRAM, ROUNDS]
            self.assertRegex(self.over(server, command=limited),
                             r"a local socket, not encrypted \(no shared memory: .*ulimit -f")

    def test_unknown_transport_is_refused(self):
        with world.Gpurund() as server:
            done = world.gpurun(*server.options(), "--", PROGRAM, ROUNDS,
                                env=world.environment(GPURUN_TRANSPORTS="ib"))
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("GPURUN_TRANSPORTS is 'ib': 'ib' is no transport; it may be shm, rdma, tcp", done.stderr)

    def test_stats_table_names_transport(self):
        with world.Gpurund() as server:
            done = world.gpurun("--stats", *server.options(), "--", PROGRAM, ROUNDS)
        self.assertRegex(done.stderr, re.compile("^over shared memory, not encrypted$", re.M))


if __name__ == "__main__":
    world.main()
