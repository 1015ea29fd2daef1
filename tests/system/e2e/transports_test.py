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
    def statistics(self, server, words=(), command=None, **options):
        done = world.measured(server, command or [PROGRAM, ROUNDS], words=words, **options)
        self.assertEqual((done.status, done.stdout, world.without_meeting(done.stderr)), (0, "done\n", ""))
        (statistics,) = done.statistics
        return statistics

    def over(self, *words, **options):
        return self.statistics(*words, **options)["transport"]

    # The reason against shared memory, in a session over that transport.
    def why_no_memory(self, over, *words, **options):
        statistics = self.statistics(*words, **options)
        self.assertEqual(statistics["transport"], over)
        return {each["transport"]: each["reason"] for each in statistics["rejected"]}["shared memory"]

    def test_local_server_uses_shared_memory(self):
        with world.Gpurund() as server:
            self.assertEqual(self.over(server), "shared memory, not encrypted")
            self.assertEqual(self.over(server, GPURUN_TRANSPORTS="shm"), "shared memory, not encrypted")

    def test_variable_selects_transport(self):
        with world.Gpurund() as server:
            for allowed in ("tcp", "tcp,shm"):
                self.assertEqual(self.over(server, GPURUN_TRANSPORTS=allowed), "TCP, not encrypted")

    # The option is stronger than the variable, and sets it for the program.
    def test_option_selects_transport(self):
        with world.Gpurund() as server:
            self.assertEqual(self.over(server, words=["--transport", "tcp"], GPURUN_TRANSPORTS="shm"), "TCP, not encrypted")
            done = world.gpurun("--transport", "tcp,shm", *server.options(), "--", "printenv", "GPURUN_TRANSPORTS")
            self.assertEqual(done.stdout, "tcp,shm\n")

    def test_relay_rules_out_shared_memory(self):
        with world.Gpurund() as server, world.DelayedLink(server.port(), 0.001) as link:
            self.assertRegex(self.why_no_memory("TCP, not encrypted", server, address=link.address),
                             "is reached through something else$")
            done = world.measured(server, [PROGRAM, ROUNDS], address=link.address, GPURUN_TRANSPORTS="shm")
            self.assertNotEqual(done.status, 0)
            self.assertRegex(done.stderr, r"GPURUN_TRANSPORTS allows shared memory only, which is not available")

    def test_tls_option_rules_out_shared_memory(self):
        with world.Gpurund("--tls") as server:
            self.assertEqual(self.why_no_memory("TCP, encrypted by TLS", server, words=["--tls"]),
                             "the session is encrypted")

    # A process that may not write a file of that size may not create shared memory of it either.
    def test_file_size_limit_falls_back_to_local_socket(self):
        with world.Gpurund() as server:
            limited = ["sh", "-c", 'ulimit -f 100; exec "$0" "$@"', PROGRAM, ROUNDS]
            self.assertRegex(self.why_no_memory("a local socket, not encrypted", server, command=limited), "ulimit -f")

    def test_unknown_transport_is_refused(self):
        with world.Gpurund() as server:
            done = world.gpurun(*server.options(), "--", PROGRAM, ROUNDS,
                                env=world.environment(GPURUN_TRANSPORTS="ib"))
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("GPURUN_TRANSPORTS is 'ib': 'ib' is no transport; it may be shm, rdma, tcp", done.stderr)

    def test_stats_table_names_transport(self):
        with world.Gpurund() as server:
            done = world.gpurun("--stats", *server.options(), "--", PROGRAM, ROUNDS)
            plain = world.gpurun("--stats", "--transport", "rdma,tcp", *server.options(), "--", PROGRAM, ROUNDS)
        self.assertRegex(done.stderr, re.compile("^over shared memory, not encrypted$", re.M))
        self.assertNotIn("not over", done.stderr)
        self.assertRegex(plain.stderr, re.compile(
            r"^over TCP, not encrypted\nnot over RDMA: the user trusts no fabric \(gpurun --trust-fabric", re.M))


if __name__ == "__main__":
    world.main()
