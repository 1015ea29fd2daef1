#!/usr/bin/env python3
"""Posting: a call that CUDA lets return at once only takes its place in the log. Over 1,000 calls
of a kind the posting thread allocates nothing in the whole process. Its only system call wakes the
sending thread, once each time that thread had nothing left to send. The same holds for two threads
that post at once, apart from the log's lock, where they sometimes meet. The test also shows that it
counts: it counts a call that allocates, and a system call."""
import json
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../support"))
import world  # noqa: E402

(PROGRAM,) = sys.argv[1:]
POSTED = ("launch of 8 parameters", "memset", "event record", "stream wait", "copy in of 64 pinned bytes")
BY_TWO = "launch of 8 parameters, two threads"


def lines(said):
    return [json.loads(line) for line in said.splitlines()]


def of(name, taken):
    return [each for each in taken if each["calls"] == name]


class Posting(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with world.Gpurund() as server:
            done = world.gpurun("-q", *server.transport.words, "-l", server.address, "--", PROGRAM,
                                env=world.client_environment(server))
            # The sending thread sleeps as soon as it may, so that there is a first wake-up to see.
            # The statistics also name the transport of both runs.
            counted = world.measured(server, [PROGRAM], GPURUN_SPIN_US="0")
        if done.returncode != 0 or counted.status != 0:
            raise AssertionError(done.stdout + done.stderr + counted.stdout + counted.stderr)
        print(done.stdout, end="", flush=True)
        cls.taken, cls.counted = lines(done.stdout), lines(counted.stdout)
        (cls.statistics,) = counted.statistics

    def seen(self):
        (control,) = of("control: asks who it is", self.taken)
        if not control["seen"]:
            self.skipTest("this kernel does not show a thread its system calls")
        self.assertEqual(control["other_calls"], 3)

    def posted(self, name, threads=1):
        found = of(name, self.taken)
        self.assertEqual(len(found), threads, name)
        return found

    def test_posting_allocates_nothing(self):
        (control,) = of("control: loads a module", self.taken)
        self.assertGreater(control["allocations"], 0)
        for name in POSTED:
            for each in self.posted(name):
                self.assertEqual(each["allocations"], 0, name)
        for each in self.posted(BY_TWO, 2):
            self.assertEqual(each["allocations"], 0, each)

    def test_posting_makes_no_system_call_except_wakeup(self):
        self.seen()
        for name in POSTED:
            for each in self.posted(name):
                self.assertEqual((each["other_calls"], each["waits"]), (0, 0), each)
        for each in self.posted(BY_TWO, 2):
            self.assertEqual(each["other_calls"], 0, each)

    def test_sender_wakeups_do_not_exceed_batches(self):
        """The sending thread sleeps only when it has sent everything. Each wake-up therefore sends
        a batch, which the session's statistics count, together with those of the calls before. A
        little room remains: a thread that is about to sleep may be woken for bytes that it has just
        sent."""
        self.seen()
        wakes = sum(each["wakes"] for name in POSTED for each in of(name, self.counted))
        batches, woken = self.statistics["batches"]["count"], self.statistics["sender_wakes"]
        print(f"{wakes} wake-ups watched, {woken} in all, {batches} batches", flush=True)
        self.assertGreater(wakes, 0)
        self.assertLessEqual(wakes, woken)  # No other thread is woken.
        self.assertLessEqual(wakes, batches)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
