#!/usr/bin/env python3
"""Bulk connections: copies use as many as the link rewards, and no more, in either direction. When
each connection is limited below the link, several are used. When the link itself is the limit, one
more is tried and dropped. The number changes during copies, and each byte arrives. Later
connections belong to the session: when one of them is cut, the session ends as for any other, with
a message.

Its words: the program driver_many_bytes.
"""
import os
import socket
import sys
import threading
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../support"))
import world  # noqa: E402
from world.between import Between  # noqa: E402

PROGRAM = sys.argv.pop(1)
BYTES_PER_S = 40_000_000  # Little compared to a processor's speed, so that the link is the limit.
MEBIBYTES, COPY = "256", "32"


class CutsWhoJoins(Between):
    """Cuts each connection after the session's first ones, after so many bytes."""
    FIRST = 3  # gpurun's own, the log's and the first bulk connection.
    BYTES = 1 << 20

    def _arrived(self):
        self.count = getattr(self, "count", 0) + 1
        return (self.BYTES if self.count > self.FIRST else None,)

    def _serve(self, near, left):
        far = socket.create_connection(self.target)
        with near, far:
            back = threading.Thread(target=self.pass_on, args=(far, near, None), daemon=True)
            back.start()
            self.pass_on(near, far, left)
            back.join()

    @staticmethod
    def pass_on(source, sink, left):
        try:
            while data := source.recv(1 << 18):
                sink.sendall(data, socket.MSG_NOSIGNAL)  # A closed peer must not end this relay.
                if left is not None and (left := left - len(data)) < 0:
                    break
            else:
                return sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


class BulkConnections(unittest.TestCase):
    def run_over(self, server, address, source="pinned", mebibytes=MEBIBYTES, way="in", **changes):
        done = world.measured(server, [PROGRAM, mebibytes, COPY, source, way], address, 120, **changes)
        return done, done.statistics[0] if done.statistics else {}

    def check(self, done):
        self.assertEqual(done.status, 0, done.stderr)
        self.assertIn("PASSED", done.stdout)

    def test_copies_in_use_several_connections_below_link_speed(self):
        for over in ("tcp", "tls"):
            for source in ("pinned", "pageable"):
                with self.subTest(over=over, source=source), world.Gpurund(over=over) as server, \
                        world.DelayedLink(server.port(), 0.001, own_bytes_per_s=BYTES_PER_S) as link:
                    done, statistics = self.run_over(server, link.address, source)
                    self.check(done)
                    print(over, source, done.stdout.split(), statistics["bulk_connections"], flush=True)
                    self.assertGreater(statistics["bulk_connections"], 1)

    def test_copies_out_use_several_connections_below_link_speed(self):
        for over, source in (("tcp", "pinned"), ("tcp", "pageable"), ("tls", "pinned")):
            with self.subTest(over=over, source=source), world.Gpurund(over=over) as server, \
                    world.DelayedLink(server.port(), 0.001, own_bytes_per_s=BYTES_PER_S) as link:
                done, statistics = self.run_over(server, link.address, source, way="out", mebibytes="512")
                self.check(done)
                print(over, source, done.stdout.split(), statistics["bulk_connections_out"], flush=True)
                # The bytes over each one justify the next.
                self.assertGreater(statistics["bulk_connections_out"], 2)

    def test_copies_keep_one_connection_at_link_speed(self):
        for way, key in (("in", "bulk_connections"), ("out", "bulk_connections_out")):
            with self.subTest(way=way), world.Gpurund(over="tcp") as server, \
                    world.DelayedLink(server.port(), 0.001, BYTES_PER_S) as link:
                done, statistics = self.run_over(server, link.address, way=way)
                self.check(done)
                print(way, done.stdout.split(), flush=True)
                self.assertEqual((statistics[key], statistics[key + "_most"]), (1, 2))

    def check_as_many_as_are_asked_for(self, server, address=None):
        for number in (1, 3):
            done, statistics = self.run_over(server, address, GPURUN_BULK_CONNECTIONS=str(number))
            self.check(done)
            self.assertEqual((statistics["bulk_connections"], statistics["bulk_connections_most"]),
                             (number, number))

    def test_copies_use_configured_number_of_connections(self):
        with world.Gpurund(over="tcp") as server, \
                world.DelayedLink(server.port(), 0.001, own_bytes_per_s=BYTES_PER_S) as link:
            self.check_as_many_as_are_asked_for(server, link.address)

    def test_local_copies_use_configured_number_of_connections(self):
        for over in ("shm", "tcp"):
            with self.subTest(over=over), world.Gpurund(over=over) as server:
                self.check_as_many_as_are_asked_for(server)

    def test_cutting_extra_connection_ends_session(self):
        for over in ("tcp", "tls"):
            with self.subTest(over=over), world.Gpurund(over=over) as server, \
                    CutsWhoJoins(server.port()) as link:
                done, _ = self.run_over(server, link.address)
                self.assertGreater(link.count, link.FIRST)
                self.assertNotEqual(done.status, 0)
                self.assertNotIn("PASSED", done.stdout)
                self.assertIn("Every CUDA call fails from now on with CUDA_ERROR_DEVICE_UNAVAILABLE",
                              done.stderr)
                world.until(lambda: not server.workers(), "its worker has ended")  # noqa: B023


world.main()
