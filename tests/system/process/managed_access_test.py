#!/usr/bin/env python3
"""GPURUN_HOST_MEMORY=check reports each access of the host to managed memory that CUDA forbids, and no
other. The program goes on. Its own handler of SIGSEGV stays in use."""
import os
import re
import sys

sys.path.insert(0, os.path.dirname(__file__))
import both  # noqa: E402
from both import PROGRAM  # noqa: E402

LINE = (r"^gpurun: warning: the host (\w+) managed memory at 0x[0-9a-f]+ \(byte (\d+) of an allocation of "
        r"(\d+) bytes\) while (.+) may use it\. CUDA forbids that where CONCURRENT_MANAGED_ACCESS is 0$")


class ManagedAccess(both.Case):
    def reports(self, what, **changes):
        env = {"GPURUN_HOST_MEMORY": "check", **changes}
        done = self.forwarded(PROGRAM, "managed_access", what, env=env)
        self.assertEqual((done.returncode, done.stdout), (0, "PASSED\n"), done.stderr)
        lines = [line for line in done.stderr.splitlines() if "managed memory" in line]
        found = [re.match(LINE, line) for line in lines]
        self.assertTrue(all(found), lines)
        return [(one[4], int(one[2])) for one in found]

    def test_access_behind_unfinished_work_is_reported(self):
        for transport in ("shm", "tcp"):
            with self.subTest(transport=transport):
                self.assertEqual(self.reports("launch", GPURUN_TRANSPORTS=transport), [("kernel put_seven", 4000)])
        self.assertEqual(self.reports("fill"), [("cuMemsetD8Async", 4000)])
        self.assertEqual(self.reports("stream"), [("kernel put_seven", 4000)])

    def test_other_access_is_not_reported(self):
        for what in ("waits", "host", "idle-stream"):
            with self.subTest(what=what):
                self.assertEqual(self.reports(what), [])

    def test_nothing_is_reported_without_the_check(self):
        for choice in ("mirror", "compare"):
            self.assertEqual(self.reports("launch", GPURUN_HOST_MEMORY=choice), [])

    def test_handler_of_the_program_gets_its_own_faults(self):
        self.assertEqual(self.reports("own-handler"), [("kernel put_seven", 4000)] * 2)

    def test_other_fault_ends_the_program(self):
        done = self.forwarded(PROGRAM, "managed_access", "crash",
                              env={"GPURUN_HOST_MEMORY": "check", **both.unreported_signals()})
        self.assertEqual(done.returncode, -11, done.stderr)


if __name__ == "__main__":
    both.main()
