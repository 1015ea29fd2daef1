#!/usr/bin/env python3
"""Pulled copies and written results: a server reads and writes large pinned memory of the program over
RDMA, on the verbs double. The program and its library copy no byte of it, and it goes over TCP right when
the fabric fails.
"""
import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../support"))
import world  # noqa: E402
from world.relay import Relay  # noqa: E402

VERBS_FOLDER = sys.argv.pop()
PROGRAM = sys.argv.pop()
# The double's NICs find each other within one network namespace, so the worker keeps that of the test.
SERVER = ("--confinement", "none", "--fabric", "rdma0:1")
MIB = 1 << 20
# Of the program's nine copies to the device, one reads what a copy from the device writes. It goes in turn.
PULLED = 8
# Fields of verbs_double_counts.
POSTED_BYTES, READ_BYTES, WRITTEN_BYTES = 8, 21, 23


def counts_in(path):
    with open(path, "rb") as file:
        whole = file.read()
    return [int.from_bytes(whole[at:at + 8], "little") for at in range(0, len(whole), 8)]


class PulledCopies(unittest.TestCase):
    def run_over(self, server, size, address=None, way="", **changes):
        """The statistics of a run that copies right. `counts` has what the client's device did."""
        with tempfile.TemporaryDirectory() as folder:
            counters = os.path.join(folder, "counters")
            done = world.measured(server, [PROGRAM, str(size)] + [way] * (way != ""), address=address, words=("--trust-fabric",),
                                  **{"GPURUN_TRANSPORTS": "rdma,tcp", "GPURUN_PACKING": "off", "LD_LIBRARY_PATH": VERBS_FOLDER,
                                     "VERBS_DOUBLE_COUNTERS": counters, **changes})
            self.assertEqual((done.status, done.stdout, world.without_meeting(done.stderr)), (0, "right\n", ""))
            self.counts = counts_in(counters)
        self.seconds = done.seconds
        (statistics,) = done.statistics
        return statistics

    def test_client_sends_no_byte_of_pulled_copies(self):
        size = 64 * MIB
        with world.Gpurund(*SERVER) as server, Relay(server.port()) as relay:
            statistics = self.run_over(server, size, address=relay.address)
            self.assertTrue(statistics["transport"].startswith("RDMA by rdma0:1"))
            self.assertEqual(statistics["pulled_bytes"], PULLED * size)
            self.assertEqual((statistics["pulls_sent"], statistics["not_pulled"]), (0, {"copies": 0, "reason": ""}))
            self.assertEqual(statistics["connections_that_left"], 0)
            self.assertEqual(statistics["written_bytes"], size)
            # The client posts the bytes of the copy in turn.
            self.assertLess(self.counts[POSTED_BYTES], size + 2 * MIB)
            world.until(relay.quiet, "the client has ended its connections")
            self.assertLess(sum(map(len, relay.heard + relay.told)), 64 << 10)

    def test_no_byte_of_pinned_copies_goes_another_way(self):
        size = 64 * MIB
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o755)
            counters = os.path.join(folder, "verbs_counters")
            with open(counters, "wb"):
                os.chmod(counters, 0o666)  # The worker may have a user of its own.
            with world.Gpurund(*SERVER, env=world.environment(TMPDIR=folder)) as server, Relay(server.port()) as relay:
                statistics = self.run_over(server, size, relay.address, way="pinned")
                world.until(relay.quiet, "the client has ended its connections")
            workers = counts_in(counters)
        self.assertEqual((statistics["pulled_bytes"], statistics["written_bytes"]), (2 * size, 2 * size))
        self.assertEqual(statistics["connections_that_left"], 0)
        # Each end has probed its device with a few bytes.
        self.assertLess(workers[READ_BYTES] - 2 * size, 1 << 10)
        self.assertEqual(workers[WRITTEN_BYTES], 2 * size)
        self.assertLess(workers[POSTED_BYTES] - 4 * size, 64 << 10)
        self.assertLess(self.counts[POSTED_BYTES], 64 << 10)
        self.assertLess(sum(map(len, relay.heard + relay.told)), 64 << 10)

    def test_results_are_written_until_their_memory_ends(self):
        size = 4 * MIB
        with world.Gpurund(*SERVER) as server:
            statistics = self.run_over(server, size, way="results")
            self.assertEqual((statistics["written_bytes"], statistics["not_written"]["copies"]), (8 * size, 0))
            self.assertEqual(statistics["connections_that_left"], 0, "a write met memory that had ended")

    # A box without gaps in pinned memory is written. The bytes between lines belong to the program.
    def test_boxes_are_written_where_they_have_no_gaps(self):
        size = 8 * MIB
        with world.Gpurund(*SERVER) as server:
            statistics = self.run_over(server, size, way="boxes")
        self.assertEqual((statistics["written_bytes"], statistics["connections_that_left"]), (size // 2, 0))

    # The server's limit suffices for the rings, and not for its own part of large copies. A person at the client learns why.
    def test_client_learns_why_the_server_does_not_move_copies(self):
        size = 4 * MIB
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o755)
            with open(os.path.join(folder, "verbs_faults"), "w", encoding="utf-8") as file:
                file.write(f"memlock bytes={(8 << 20) + (512 << 10)}")
            with world.Gpurund(*SERVER, env=world.environment(TMPDIR=folder)) as server:
                statistics = self.run_over(server, size, way="pinned")
                done = world.gpurun("--stats", "--trust-fabric", *server.options(), "--", PROGRAM, str(size), "pinned",
                                    env=world.environment(GPURUN_TRANSPORTS="rdma", LD_LIBRARY_PATH=VERBS_FOLDER))
        for what in ("reads", "writes"):
            self.assertIn("the device does not register", statistics["server_refuses"][what])
        self.assertGreater(statistics["pulls_sent"], 0)
        self.assertEqual(statistics["report_round_trips"], 2)
        self.assertEqual(done.stdout, "right\n")
        for what in ("read", "write"):
            self.assertRegex(done.stderr, f"\nthe server does not {what} large copies by itself: the device does not register")

    # The worker's device fails in mid-copy, and the rest of the bytes comes over TCP.
    def test_results_end_right_over_tcp_when_a_write_fails(self):
        size = 16 * MIB
        for fault in ("completes_with at=20 kind=write status=10", "post_fails at=20 kind=write error=ENOMEM",
                      "breaks_qp bytes=21000000", "cuts_qp bytes=21000000"):
            with tempfile.TemporaryDirectory() as folder:
                os.chmod(folder, 0o755)
                with open(os.path.join(folder, "verbs_faults"), "w", encoding="utf-8") as file:
                    file.write(fault)
                with world.Gpurund(*SERVER, env=world.environment(TMPDIR=folder)) as server:
                    statistics = self.run_over(server, size, way="results")
                self.assertEqual(statistics["not_written"]["reason"], "the server could not write an earlier copy", fault)
                self.assertGreater(statistics["connections_that_left"], 0, fault)

    def test_small_copies_are_not_pulled(self):
        with world.Gpurund(*SERVER) as server:
            self.assertEqual(self.run_over(server, MIB - 1)["pulled_bytes"], 0)
            self.assertEqual(self.run_over(server, MIB)["pulled_bytes"], PULLED * MIB)

    # The worker's device fails in mid-copy, and the session goes on over TCP.
    def test_copies_end_right_over_tcp_when_a_read_fails(self):
        size = 16 * MIB
        for fault in ("completes_with at=20 kind=read status=10", "post_fails at=20 kind=read error=ENOMEM",
                      "breaks_qp bytes=9000000", "cuts_qp bytes=9000000"):
            with tempfile.TemporaryDirectory() as folder:
                os.chmod(folder, 0o755)
                with open(os.path.join(folder, "verbs_faults"), "w", encoding="utf-8") as file:
                    file.write(fault)
                with world.Gpurund(*SERVER, env=world.environment(TMPDIR=folder)) as server:
                    statistics = self.run_over(server, size)
                self.assertGreater(statistics["pulls_sent"], 0, fault)
                self.assertEqual(statistics["not_pulled"]["reason"], "the server could not read an earlier copy", fault)
                self.assertGreater(statistics["connections_that_left"], 0, fault)

    # The allocation of the ended context stays lent while it is read. What follows at its address is lent as a whole.
    def test_memory_that_is_registered_anew_behind_the_end_of_its_context_is_pulled(self):
        size = 4 * MIB
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o755)
            with open(os.path.join(folder, "verbs_faults"), "w", encoding="utf-8") as file:
                file.write("delays us=20000")
            with world.Gpurund(*SERVER, env=world.environment(TMPDIR=folder)) as server:
                statistics = self.run_over(server, size, way="ended")
        self.assertEqual(statistics["not_pulled"], {"copies": 0, "reason": ""})
        self.assertEqual(statistics["pulled_bytes"], 3 * size)

    def test_limit_of_locked_memory_is_a_reason(self):
        with world.Gpurund(*SERVER) as server:
            # The rings of both connections, and no more.
            statistics = self.run_over(server, 4 * MIB, VERBS_DOUBLE_FAULTS=f"memlock bytes={(8 << 20) + (512 << 10)}")
            self.assertEqual(statistics["pulled_bytes"], 0)
            self.assertEqual(statistics["not_pulled"]["copies"], PULLED)
            self.assertIn("does not register", statistics["not_pulled"]["reason"])

    def test_devices_that_do_not_read_send_as_before(self):
        with world.Gpurund(*SERVER) as server:
            for devices in ("rdma0 reads=0", "rdma0 profile=send_only"):
                statistics = self.run_over(server, 4 * MIB, VERBS_DOUBLE_DEVICES=devices)
                self.assertEqual((statistics["pulled_bytes"], statistics["connections_that_left"]), (0, 0), devices)


if __name__ == "__main__":
    world.main()
