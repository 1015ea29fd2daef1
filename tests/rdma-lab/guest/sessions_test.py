#!/usr/bin/env python3
"""Sessions across the link of a guest (sessions.py): what they send, and what they outlive.

Its words: the program to run, with its arguments, which must print PASSED. --transport, of world.
"""
import os
import sys
import unittest

WORDS = sys.argv[sys.argv.index("--") + 1:]
del sys.argv[sys.argv.index("--"):]
import faults  # noqa: E402
from sessions import Process, kill, measured, server, world  # noqa: E402

RANDOM_CALLS = os.path.join(world.ARGS.build, "tests/random_calls")


class Sessions(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = server()
        cls.addClassCleanup(cls.server.__exit__, None, None, None)

    def assert_passed(self, run):
        self.assertEqual(run.status, 0, run.stdout + run.stderr + self.server.log())
        self.assertIn("PASSED", run.stdout)

    def test_program_runs_across_the_link(self):
        links = {"va": faults.packets("va"), "vb": faults.packets("vb")}
        devices = {name: faults.rdma_counter(name, "sent_pkts") for name in ("rxa", "rxb")}
        self.assert_passed(measured(self.server, *WORDS))
        for name, before in links.items():
            self.assertGreater(faults.packets(name) - before, 20, name)
        # Neither side has consented to RDMA, so the session sends none of its packets.
        for name, before in devices.items():
            self.assertEqual(faults.rdma_counter(name, "sent_pkts"), before, name)

    def test_worker_is_confined(self):
        with Process(self.server, world.ARGS.client, "wait") as process:
            process.reads("ready")
            worker, = self.server.workers()
            status = world.status_of(worker)
            self.assertNotIn("0", status["Uid"].split())
            self.assertEqual(status["Seccomp"], "2")
            self.assertNotEqual(os.readlink(f"/proc/{worker}/ns/net"), os.readlink("/proc/self/ns/net"))
            process.writes_line()
            self.assertEqual(process.ends(), (0, ""))

    def test_session_outlives_lost_packets(self):
        with faults.impaired("va", "loss", "5%"), faults.impaired("vb", "loss", "5%"):
            self.assert_passed(measured(self.server, *WORDS))

    def test_session_outlives_a_link_that_is_down(self):
        with Process(self.server, RANDOM_CALLS, "end", "1") as process:
            process.reads("running")
            with faults.link_down("va"):
                process.writes_line()
                self.assertFalse(world.wait(lambda: process.run.poll() is not None, 3))
            self.assertEqual(process.ends(), (0, ""))

    def test_killed_worker_is_named(self):
        with Process(self.server, world.ARGS.client, "wait") as process:
            process.reads("ready")
            kill("worker", self.server)
            process.writes_line()
            status, errors = process.ends()
            self.assertNotEqual(status, 0)
            self.assertRegex(errors, r"the worker of this process died: signal 9 \(Killed\)")

    def test_killed_daemon_is_named(self):
        with server() as mortal, Process(mortal, world.ARGS.client, "wait") as process:
            process.reads("ready")
            kill("daemon", mortal)
            process.writes_line()
            status, errors = process.ends()
            self.assertNotEqual(status, 0)
            self.assertRegex(errors, r"ended the lease")

    def test_program_runs_without_verbs_library(self):
        with faults.hidden(*faults.libraries("libibverbs.so.1")), server() as without:
            self.assert_passed(measured(without, *WORDS))

    def test_program_runs_with_low_memlock(self):
        self.assert_passed(measured(self.server, *faults.with_memlock(0), *WORDS))


if __name__ == "__main__":
    world.main()
