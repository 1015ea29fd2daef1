#!/usr/bin/env python3
"""Fabric: sessions over RDMA between the two devices of a guest (network_pair.sh): when they use it, what goes
over it, and what they outlive.

Its words: those of `world`.
"""
import contextlib
import os
import subprocess
import time
import unittest

import faults
import queue_pairs
from crossing import ROCE, TCP, Crossing
from sessions import Process, kill, measured, server, world

OVER_RDMA, OVER_TCP = "^RDMA by rx[ab]:1 to rx[ab]:1, payload not encrypted$", "^TCP, not encrypted$"
CONSENT = {"GPURUN_TRANSPORTS": "rdma,tcp", "GPURUN_TRUST_FABRIC": "*"}
BUILD = world.ARGS.build
COPIES = os.path.join(BUILD, "tests/copy_client")
VECTOR_ADD = (os.path.join(BUILD, "programs/driver_vector_add"),
              os.path.join(BUILD, "programs/behaviour_kernels.fatbin"))
DIGITS = (os.path.join(BUILD, "programs/sample_mnist"), "--epochs", "1", "--accuracy-bar", "0.8")
# QEMU 7.2 reads 16 bytes where an instruction multiplies and adds one float of memory. The code of the other tier
# has such instructions, and fails at the end of the device's memory.
TIER = "tier=regions"
MIB = 1 << 20
ROUNDS = 60  # Of a program that copies 1 MiB to the device and back in each. It must not end before a fault.
BEGUN = 100  # Packets, more than a session has before its first copy.
FEW_BYTES = 64 << 10  # Of TCP, for a session that goes over RDMA.
# Of a session that leaves its queue pair, until it goes on over TCP: transport/rdma/transitions.h.
LEAVES_SECONDS = 2


def trusting(driver, confinement, **options):
    """A server that trusts its fabric. Its sessions may use any transport."""
    return server("--fabric", "*", "--confinement", confinement, driver=world.DRIVERS[driver], over=None, **options)


class Sessions(unittest.TestCase):
    def assert_run(self, run, said, over):
        self.assertEqual(run.status, 0, run.stdout + run.stderr + self.server.log())
        self.assertIn(said, run.stdout)
        self.assertRegex(run.statistics[0]["transport_at_first"], over)
        return run

    def counted(self, *command, said, **changes):
        """A run over RDMA. Returns its output, and the bytes of TCP and of RoCE that cross the link."""
        with Crossing(TCP) as tcp, Crossing(ROCE) as roce:
            run = self.assert_run(measured(self.server, *command, **{**CONSENT, **changes}), said, OVER_RDMA)
            return run.stdout, tcp.so_far(), roce.so_far()


class Emulated(Sessions):
    @classmethod
    def setUpClass(cls):
        cls.server = trusting("emulated", "none", before=("env", f"GPURUN_EMULATED={TIER}"))
        cls.addClassCleanup(cls.server.__exit__, None, None, None)

    def test_program_goes_over_rdma(self):
        _, tcp, roce = self.counted(*VECTOR_ADD, said="PASSED")
        self.assertLess(tcp, FEW_BYTES)
        self.assertGreater(roce, tcp)

    def test_accuracy_is_the_same_natively_and_over_each_transport(self):
        native = subprocess.run(DIGITS, capture_output=True, text=True, timeout=4 * world.SECONDS,
                                env=world.environment(LD_LIBRARY_PATH=os.path.dirname(world.DRIVERS["emulated"]),
                                                      GPURUN_EMULATED=TIER))
        self.assertEqual(native.returncode, 0, native.stdout + native.stderr)
        over_rdma, tcp, roce = self.counted(*DIGITS, said="PASSED")
        over_tcp = self.assert_run(measured(self.server, *DIGITS, GPURUN_TRANSPORTS="tcp"), "PASSED", OVER_TCP)
        self.assertEqual(*map(results, (native.stdout, over_rdma)))
        self.assertEqual(*map(results, (native.stdout, over_tcp.stdout)))
        self.assertLess(tcp, FEW_BYTES)


class Copying(Process):
    """A program that copies to the device and back over RDMA. Begins as soon as it sends."""

    def __init__(self, serving, rounds=ROUNDS):
        before = faults.rdma_counter("rxa", "sent_pkts")
        super().__init__(serving, COPIES, str(rounds), str(MIB), GPURUN_PACKING="off", **CONSENT)
        world.until(lambda: faults.rdma_counter("rxa", "sent_pkts") - before > BEGUN or self.run.poll() is not None,
                    "it sends")

    def program(self):
        """The process id of the one that copies."""
        program, = (pid for pid in world.children(self.run.pid) if queue_pairs.devices(pid))
        return program


class Faults(Sessions):
    """The null device keeps bytes, so the program shows that they arrive. Its workers are confined."""

    @classmethod
    def setUpClass(cls):
        cls.server = trusting("null", "full")
        cls.addClassCleanup(cls.server.__exit__, None, None, None)

    def assert_right(self, copying):
        self.assertEqual((*copying.ends(), copying.said), (0, "", "right\n"), self.server.log())

    def assert_leaves(self, breaks):
        """`breaks(copying)` breaks the queue pairs of a copying program."""
        with Crossing(TCP) as tcp, Copying(self.server) as copying:
            before = tcp.so_far()
            self.assertLess(before, FEW_BYTES)
            breaks(copying)
            begin = time.monotonic()
            self.assertIsNone(copying.run.poll(), "it has ended before")
            world.until(lambda: tcp.so_far() - before > FEW_BYTES, "the session goes on over TCP")
            seconds = time.monotonic() - begin
            self.assert_right(copying)
            print(f"over TCP after {seconds:.2f} s", flush=True)
            self.assertLess(seconds, LEAVES_SECONDS)

    def test_session_of_a_confined_worker_uses_rdma(self):
        with Crossing(ROCE) as roce, Process(self.server, world.ARGS.client, "wait", **CONSENT) as process:
            process.reads("ready")
            worker, = self.server.workers()
            status = world.status_of(worker)
            self.assertNotIn("0", status["Uid"].split())
            self.assertEqual(status["Seccomp"], "2")
            self.assertNotEqual(os.readlink(f"/proc/{worker}/ns/net"), os.readlink("/proc/self/ns/net"))
            before = roce.so_far()
            process.writes_line()
            self.assertEqual(process.ends(), (0, ""))
            self.assertGreater(roce.so_far(), before)

    def test_programs_queue_pair_is_destroyed_in_mid_copy(self):
        self.assert_leaves(lambda copying: self.assertGreaterEqual(queue_pairs.destroy(copying.program()), 2))

    def test_workers_queue_pair_is_destroyed_in_mid_copy(self):
        def breaks(_):
            worker, = self.server.workers()
            self.assertGreaterEqual(queue_pairs.destroy(worker), 2)
        self.assert_leaves(breaks)

    def test_packets_get_another_partition_key_in_mid_copy(self):
        with contextlib.ExitStack() as stack:
            self.assert_leaves(lambda _: stack.enter_context(faults.wrong_pkey("va")))

    def test_link_is_down_in_mid_copy(self):
        """The program's device may report nothing then, as rxe does with requests under way (pair_test.py)."""
        with Crossing(TCP, "vb") as tcp, Copying(self.server) as copying:
            with faults.link_down("va"):
                self.assertIsNone(copying.run.poll(), "it has ended before")
                before = tcp.so_far()
                self.assertFalse(world.wait(lambda: copying.run.poll() is not None, 3), "it goes on without a link")
            self.assert_right(copying)
            self.assertGreater(tcp.so_far() - before, FEW_BYTES)

    def test_packets_are_lost_and_late(self):
        for netem in (("loss", "1%"), ("delay", "5ms")):
            with (Crossing(TCP) as tcp, faults.impaired("va", *netem), faults.impaired("vb", *netem),
                  Copying(self.server, 4) as copying):
                self.assert_right(copying)
                self.assertLess(tcp.so_far(), FEW_BYTES, f"{netem}: the session has left RDMA")

    def test_killed_worker_is_named(self):
        with Copying(self.server) as copying:
            kill("worker", self.server)
            status, errors = copying.ends()
            self.assertNotEqual(status, 0)
            self.assertRegex(errors, r"the worker of this process died: signal 9 \(Killed\)")

    def test_killed_daemon_is_named(self):
        with trusting("null", "full") as mortal, Copying(mortal) as copying:
            kill("daemon", mortal)
            status, errors = copying.ends()
            self.assertNotEqual(status, 0)
            self.assertRegex(errors, r"ended the lease")


class Refusals(Sessions):
    """Sessions that stay with TCP, and the reason in their statistics."""

    def assert_refused(self, why, command=(COPIES, "1", "100"), **changes):
        with Crossing(ROCE) as roce:
            run = self.assert_run(measured(self.server, *command, **{**CONSENT, **changes}), "right", OVER_TCP)
            self.assertRegex("\n".join(f"{one['transport']}: {one['reason']}" for one in run.statistics[0]["rejected"]), why)
            self.assertEqual(roce.so_far(), 0)

    def test_neither_side_alone_consents(self):
        with trusting("null", "full") as self.server:
            self.assert_refused("^RDMA: the user trusts no fabric", GPURUN_TRUST_FABRIC=None)
            for port in ("rxa:1", "rxb:1"):
                self.assert_refused(f"(?m)^RDMA by {port}: it is not among the trusted fabrics", GPURUN_TRUST_FABRIC="mlx5_0")
                self.assert_refused(f"(?m)^RDMA by {port}: GPURUN_NET_DEVICES does not name it", GPURUN_NET_DEVICES="mlx5_0")
            # Its other device does not reach the server.
            self.assert_refused("(?m)^RDMA by rxb:1: none of its GIDs", GPURUN_TRUST_FABRIC="rxb")
        with server(driver=world.DRIVERS["null"], over=None) as self.server:
            self.assert_refused("^RDMA: the server trusts no fabric")

    def test_confined_worker_of_the_emulated_device(self):
        with trusting("emulated", "full") as self.server:
            self.assert_refused("(?m)^RDMA: the server: workers of emulated devices are confined")

    def test_program_without_verbs_library_or_driver_of_the_device(self):
        with trusting("null", "full") as self.server:
            with faults.hidden(*faults.libraries("libibverbs.so.1")):
                self.assert_refused("^RDMA: .*libibverbs.so.1")
            with faults.hidden(*faults.libraries("libibverbs/librxe-*.so")):
                self.assert_refused("^RDMA: this machine has no RDMA device")

    def test_low_memlock(self):
        with trusting("null", "full") as self.server:
            self.assert_refused("rx[ab]:1: the device does not register .*'ulimit -l'",
                                (*faults.with_memlock(0), COPIES, "1", "100"))
            run = measured(self.server, *faults.with_memlock(1024), COPIES, "2", str(MIB), **CONSENT)
            self.assert_run(run, "right", OVER_RDMA)


def results(output):
    """The program's lines without those that differ each time."""
    return [line for line in output.splitlines() if not line.endswith("images/s")]


if __name__ == "__main__":
    world.main()
