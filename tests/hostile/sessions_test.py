#!/usr/bin/env python3
"""A malicious client with a valid ticket harms nobody else. Each session of hostile_sessions ends only its
own worker, or its requests are refused. The daemon and a program that computes beside them go on without
errors. The log names what ended a session. No process, descriptor or memory of the sessions is left."""
import os
import re
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../support"))
import trials  # noqa: E402
import world  # noqa: E402
from world import descriptors, environment, status_of, until  # noqa: E402

SESSIONS, NEIGHBOUR, NULL_DRIVER = sys.argv.pop(1), sys.argv.pop(1), sys.argv.pop(1)
SESSIONS_MIN = 70
DAEMON_GROWTH_KIB_MAX = 64 << 10


def resident_kib(pid):
    return int(status_of(pid)["VmRSS"].split()[0])


class HostileSessions(unittest.TestCase):
    def setUp(self):
        env = environment(GPURUN_EMULATED="devices=2")
        server = self.enterContext(world.Gpurund("--spare-workers", "0", env=env))
        self.server = server
        self.neighbour = subprocess.Popen(
            [world.GPURUN, "-q", *server.options(), "--", NEIGHBOUR], text=True, env=environment(),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(self.end_neighbour)
        self.assertEqual(self.neighbour.stdout.readline(), "ready\n", server.log())

    def end_neighbour(self):
        if self.neighbour.poll() is None:
            self.neighbour.kill()
            self.neighbour.communicate(timeout=world.SECONDS)

    def attack(self, *names):
        attacker = trials.started(self.server, SESSIONS, names)
        output, _ = attacker.communicate(timeout=12 * world.SECONDS)
        return attacker.returncode, trials.ends(output)

    def test_hostile_sessions_harm_only_themselves(self):
        daemon = self.server.process
        self.attack("noise_where_a_frame_is_due")  # What is made once is there after that.
        until(lambda: len(self.server.workers()) == 1, "the stranger's workers end")
        open_before, kib_before = descriptors(daemon.pid), resident_kib(daemon.pid)
        begin = time.monotonic()
        status, sessions = self.attack()
        self.assertEqual((status, trials.wrong(sessions)), (0, []), self.server.log()[-4000:])
        self.assertGreaterEqual(len(sessions), SESSIONS_MIN)
        # The end of the lease ends all kernels, also one that never ends by itself.
        until(lambda: len(self.server.workers()) == 1, "nothing but the neighbour's worker is left")
        until(lambda: descriptors(daemon.pid) <= open_before, "the daemon's descriptors are closed")
        self.assertLess(resident_kib(daemon.pid) - kib_before, DAEMON_GROWTH_KIB_MAX)
        log = self.server.log()
        for name, _, end in sessions:
            if end not in ("served", "gone", "closed"):
                self.assertRegex(log, r"gpurun-worker\[\d+\]: .*" + re.escape(end), name)
        self.assertNotRegex(log, "ended with (signal|a forbidden|its memory)")
        self.assertIsNone(daemon.poll())
        rounds, errors = self.neighbour.communicate("\n", timeout=world.SECONDS)
        self.assertEqual((self.neighbour.returncode, errors), (0, ""), rounds)
        print(f"{len(sessions)} sessions in {time.monotonic() - begin:.1f} s, meanwhile "
              f"{rounds.strip()} rounds of the neighbour's")
        self.assertGreater(int(rounds), 10)


class HostileValues(unittest.TestCase):
    """A driver that takes any value shows what the worker itself refuses."""

    def test_attributes_with_pointers_do_not_reach_the_driver(self):
        server = self.enterContext(world.Gpurund("--spare-workers", "0", driver=NULL_DRIVER))
        attacker = trials.started(server, SESSIONS, ["set_attributes_that_lie"])
        output, errors = attacker.communicate(timeout=4 * world.SECONDS)
        self.assertEqual(output, "set_attributes_that_lie: right: served\n", errors + server.log())


if __name__ == "__main__":
    world.main()
