#!/usr/bin/env python3
"""Protects: a call that CUDA lets return at once takes nothing but its place in the log. Over 1,000 of a
kind the thread that posts allocates nothing, anywhere in the process, and makes no system call but to wake
who sends. What is counted is shown to be counted: a call that allocates, and one of the kernel's, are."""
import json
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import world  # noqa: E402

(PROGRAM,) = sys.argv[1:]
POSTED = ("launch of 8 parameters", "memset", "event record", "stream wait", "copy in of 64 pinned bytes")


class Posting(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with world.Gpurund() as server:
            done = world.gpurun("-q", "-l", server.address, "--", PROGRAM,
                                env=world.client_environment(server))
        if done.returncode != 0:
            raise AssertionError(done.stdout + done.stderr)
        print(done.stdout, end="", flush=True)
        cls.taken = {each["calls"]: each for each in map(json.loads, done.stdout.splitlines())}

    def test_nothing_is_allocated(self):
        self.assertGreater(self.taken["control: loads a module"]["allocations"], 0)
        for name in POSTED:
            self.assertEqual(self.taken[name]["allocations"], 0, name)

    def test_the_only_system_call_wakes_who_sends(self):
        control = self.taken["control: asks who it is"]
        if not control["seen"]:
            self.skipTest("this kernel does not show a thread its system calls")
        self.assertEqual(control["other_calls"], 3)
        for name in POSTED:
            self.assertEqual(self.taken[name]["other_calls"], 0, self.taken[name])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
