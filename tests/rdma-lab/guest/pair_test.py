#!/usr/bin/env python3
"""Pair: the two RDMA devices of a guest behave as two hosts on a network. Each fault of faults.py has the
effect on perftest's programs that it has on a network of hardware, so that a test of gpurun may rely on
it."""
import os
import subprocess
import tempfile
import unittest

import faults
import perftest
from perftest import CANNOT_SEND, FINITE, RETRY_EXCEEDED, TYPICAL_US, result, sending, until

DELAY_MS = 30
PORT = 18500
SILENT_SECONDS = 3  # More than an error takes, which comes at once or never.
# For faults. The programs for latencies can wait forever for an event (-e) after a lost packet.
ENDLESS = ("ib_write_bw", "-s", "4096", "-n", "1000000")


class OnNewDevices(unittest.TestCase):
    """Each test has devices of its own, so that the connections that one leaves do not disturb the next."""

    def setUp(self):
        faults.new_devices()


class Packets(OnNewDevices):
    def test_messages_cross_the_link(self):
        before = faults.packets("va"), faults.packets("vb")
        result("ib_send_lat", "-e", "-n", "200")
        after = faults.packets("va"), faults.packets("vb")
        for name, first, last in zip(("va", "vb"), before, after):
            self.assertGreaterEqual(last - first, 200, name)

    def test_writes_arrive(self):
        before = faults.rdma_counter("rxb", "rcvd_pkts")
        numbers = result("ib_write_bw", "-n", "100", "-s", "16384")
        self.assertEqual(numbers[:2], [16384, 100])
        self.assertGreaterEqual(faults.rdma_counter("rxb", "rcvd_pkts") - before, 400)  # Of 4096 bytes.

    def test_connection_manager_connects(self):
        self.assertEqual(result("ib_send_lat", "-e", "-R", "-n", "50")[1], 50)


class Impaired(OnNewDevices):
    def test_delay_is_in_each_message(self):
        with faults.impaired("va", "delay", f"{DELAY_MS}ms"):
            typical = result("ib_send_lat", "-e", "-n", "20")[TYPICAL_US]
        self.assertGreaterEqual(typical, DELAY_MS * 1000 / 2)  # One direction, of a half round trip.

    def test_lost_packets_are_sent_again(self):
        with faults.impaired("va", "loss", "5%"):
            self.assertEqual(result("ib_write_bw", "-n", "100", "-s", "16384")[1], 100)
        self.assertGreater(faults.rdma_counter("rxb", "out_of_seq_request"), 0)

    def test_wrong_partition_key_is_counted_and_dropped(self):
        before = faults.bad_pkeys("rxb")
        with sending(*ENDLESS, *FINITE) as pair:
            with faults.wrong_pkey("va"):
                pair.fails(RETRY_EXCEEDED)
        self.assertGreater(faults.bad_pkeys("rxb"), before)


class LinkDown(OnNewDevices):
    def test_finite_retries_end_in_an_error(self):
        with sending(*ENDLESS, *FINITE) as pair:
            with faults.link_down("vb"):
                pair.fails(RETRY_EXCEEDED)
                self.assertEqual((faults.port_state("rxa"), faults.port_state("rxb")), ("DOWN", "DOWN"))
        until(lambda: {faults.port_state("rxa"), faults.port_state("rxb")} == {"ACTIVE"}, "active ports")

    def test_endless_retries_outlive_it(self):
        with sending(*ENDLESS) as pair:
            with faults.link_down("vb"):
                before = faults.rdma_counter("rxb", "rcvd_pkts")
                with self.assertRaises(subprocess.TimeoutExpired):
                    pair.client.wait(3)
                self.assertLess(faults.rdma_counter("rxb", "rcvd_pkts") - before, 10)
            until(lambda: faults.rdma_counter("rxb", "rcvd_pkts") - before > 100, "messages arrive again")
            self.assertIsNone(pair.client.poll(), pair.said())

    def test_own_interface_down_is_an_error_or_silence(self):
        """A request that finds no route fails. Where it is not the first one under way, rxe reports neither this
        one nor any other, ever: it ends the retries of those before it."""
        with sending(*ENDLESS) as pair:
            with faults.link_down("va"):
                before = faults.rdma_counter("rxa", "sent_pkts")
                try:
                    self.assertNotEqual(pair.client.wait(SILENT_SECONDS), 0)
                    self.assertIn(CANNOT_SEND, pair.said())
                except subprocess.TimeoutExpired:
                    self.assertNotIn("status", pair.said())
            self.assertEqual(faults.rdma_counter("rxa", "sent_pkts"), before)

    def test_device_has_an_event(self):
        with tempfile.TemporaryFile("w+") as output:
            watch = subprocess.Popen(["stdbuf", "-oL", "ibv_asyncwatch", "-d", "rxa"], stdout=output,
                                     stderr=output)
            try:
                def said():
                    output.seek(0)
                    return output.read()
                until(lambda: "async event FD" in said(), "ibv_asyncwatch watches")
                with faults.link_down("va"):
                    until(lambda: "IBV_EVENT_PORT_ERR" in said(), "an event for the lost link")
                until(lambda: "IBV_EVENT_PORT_ACTIVE" in said(), "an event for the link")
            finally:
                watch.kill()
                watch.wait()


class Peers(OnNewDevices):
    def test_killed_peer_is_noticed(self):
        with sending(*ENDLESS, *FINITE) as pair:
            pair.server.kill()
            pair.fails(RETRY_EXCEEDED)


class Machine(unittest.TestCase):
    def pingpong(self, *before):
        """A server that registers 16 KiB and then waits for its client. Returns its output once it waits, or
        has failed."""
        with tempfile.TemporaryFile("w+") as output:
            process = subprocess.Popen([*before, "ibv_rc_pingpong", "-d", "rxb", "-g", "1", "-s", "16384",
                                        "-p", str(PORT)], stdout=output, stderr=output)
            try:
                until(lambda: perftest.listens(PORT) or process.poll() is not None, "it waits or ends")
                output.seek(0)
                return process.poll(), output.read()
            finally:
                process.kill()
                process.wait()

    def test_low_memlock_refuses_registration(self):
        self.assertEqual(self.pingpong()[0], None)
        self.assertEqual(self.pingpong(*faults.with_memlock(1024))[0], None)
        for kib in (0, 8):
            status, said = self.pingpong(*faults.with_memlock(kib))
            self.assertEqual(status, 1, said)
            self.assertIn("Couldn't register MR", said)

    def test_hidden_library_is_missing(self):
        paths = faults.libraries("libibverbs.so.1")
        with faults.hidden(*paths):
            done = subprocess.run(["ibv_devinfo"], capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 127)
            self.assertIn("libibverbs.so.1: cannot open shared object file", done.stderr)
        self.assertTrue(all(map(os.path.exists, paths)))
        subprocess.run(["ibv_devinfo"], check=True, capture_output=True, timeout=60)

    def test_hidden_provider_leaves_no_device(self):
        with faults.hidden(*faults.libraries("libibverbs/librxe-*.so")):
            done = subprocess.run(["ibv_devinfo"], capture_output=True, text=True, timeout=60)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("No IB devices found", done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
