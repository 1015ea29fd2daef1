#!/usr/bin/env python3
"""Direct copies: a server's RDMA device reads large pinned memory of the program into the memory of a GPU (GPUDirect), on
the verbs double and the emulated device. Kernels before and behind such a copy see what they would see with a local GPU.
"""
import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../support"))
import world  # noqa: E402

VERBS_FOLDER = sys.argv.pop()
PROGRAM = sys.argv.pop()
# As in pulled_copies_test.py.
SERVER = ("--confinement", "none", "--fabric", "rdma0:1")
MIB = 1 << 20
# The program copies three times in an idle stream, and once behind a kernel.
IDLE, ALL = 3, 4
# An allocation of up to 64 MiB is in the client's window of device memory, and a larger one is the driver's own.
WINDOWED, PLAIN = 24 * MIB, 72 * MIB


class DirectCopies(unittest.TestCase):
    def run_at(self, server, size, *way, **changes):
        done = world.measured(server, [PROGRAM, str(size), *way], words=("--trust-fabric",),
                              **{"GPURUN_TRANSPORTS": "rdma,tcp", "LD_LIBRARY_PATH": VERBS_FOLDER, **changes})
        self.assertEqual((done.status, done.stdout, world.without_meeting(done.stderr)), (0, "right\n", ""))
        (statistics,) = done.statistics
        return statistics

    def run_with(self, faults, size, *way):
        """The statistics of a run, where the worker's RDMA device has faults."""
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o755)
            with open(os.path.join(folder, "verbs_faults"), "w", encoding="utf-8") as file:
                file.write(faults)
            with world.Gpurund(*SERVER, env=world.environment(TMPDIR=folder)) as server:
                return self.run_at(server, size, *way)

    def test_kernels_see_the_right_bytes(self):
        with world.Gpurund(*SERVER) as server:
            for size, direct in ((WINDOWED, IDLE), (PLAIN, ALL)):
                statistics = self.run_at(server, size)
                self.assertEqual((statistics["pulled_bytes"], statistics["direct_bytes"]), (ALL * size, direct * size))
                self.assertEqual((statistics["pulls_sent"], statistics["connections_that_left"]), (0, 0))

    # The worker has a copy of such memory, of which no write of its device under way may stay out.
    def test_kernels_see_results_that_were_under_way_to_viewed_memory(self):
        size = 4 * MIB
        self.assertEqual(self.run_with("delays us=5000", size, "views")["written_bytes"], 2 * size)

    def test_operator_may_say_no(self):
        with world.Gpurund(*SERVER, "--gpudirect", "off") as server:
            statistics = self.run_at(server, WINDOWED)
        self.assertEqual((statistics["pulled_bytes"], statistics["direct_bytes"]), (ALL * WINDOWED, 0))
        self.assertEqual(statistics["server_refuses"]["gpu_memory"], "the operator has turned GPUDirect off")

    def test_peer_memory_serves_where_dma_buf_does_not(self):
        statistics = self.run_with("dmabuf_fails error=EOPNOTSUPP", WINDOWED)
        self.assertEqual((statistics["direct_bytes"], statistics["pulls_sent"]), (IDLE * WINDOWED, 0))

    def test_kernels_see_the_right_bytes_when_a_read_fails(self):
        for size in (WINDOWED, PLAIN):
            for fault in ("completes_with at=20 kind=read status=10", "post_fails at=20 kind=read error=ENOMEM",
                          "breaks_qp bytes=9000000", "cuts_qp bytes=9000000"):
                statistics = self.run_with(fault, size)
                self.assertGreater(statistics["pulls_sent"], 0, fault)
                self.assertGreater(statistics["connections_that_left"], 0, fault)


if __name__ == "__main__":
    world.main()
