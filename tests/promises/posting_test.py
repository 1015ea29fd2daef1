#!/usr/bin/env python3
"""Protects: a call that CUDA lets return at once takes nothing but its place in the log. Over 1,000 of a
kind the thread that posts allocates nothing, anywhere in the process, and makes no system call but to wake
who sends, once each time that had nothing left to send; so do two threads that post at once, but for the
log's lock where they meet at it (how often is the machine's to say). What is counted is shown to be counted:
a call that allocates, and one of the kernel's, are."""
import json
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
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
            # Who sends sleeps as soon as it may: then there is a first wake-up to see. Its statistics
            # also say over what both went.
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

    def test_nothing_is_allocated(self):
        (control,) = of("control: loads a module", self.taken)
        self.assertGreater(control["allocations"], 0)
        for name in POSTED:
            for each in self.posted(name):
                self.assertEqual(each["allocations"], 0, name)
        for each in self.posted(BY_TWO, 2):
            self.assertEqual(each["allocations"], 0, each)

    def test_the_only_system_call_wakes_who_sends(self):
        self.seen()
        for name in POSTED:
            for each in self.posted(name):
                self.assertEqual((each["other_calls"], each["waits"]), (0, 0), each)
        for each in self.posted(BY_TWO, 2):
            self.assertEqual(each["other_calls"], 0, each)

    def test_who_sends_is_woken_once_for_what_it_sends_at_once(self):
        """It sleeps only when it has sent all that there was, so each time it is woken it sends a batch,
        which the session's own statistics count (those of the calls before a stretch, too: some room, for
        who is on its way to sleep may be woken for what it has just sent)."""
        self.seen()
        wakes = sum(each["wakes"] for name in POSTED for each in of(name, self.counted))
        batches, woken = self.statistics["batches"]["count"], self.statistics["sender_wakes"]
        print(f"{wakes} wake-ups watched, {woken} in all, {batches} batches", flush=True)
        self.assertGreater(wakes, 0)
        self.assertLessEqual(wakes, woken)  # Of nobody else.
        self.assertLessEqual(wakes, batches)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
