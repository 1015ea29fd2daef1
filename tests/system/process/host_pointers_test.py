#!/usr/bin/env python3
"""Kernels that follow a pointer to host memory. They reach pinned memory, unless the user forbids it.
They reach no registered memory. One line then names the kernel and the parameter. Another fault
prints no such line."""
import os
import re
import sys

sys.path.insert(0, os.path.dirname(__file__))
import both  # noqa: E402
from both import PROGRAM  # noqa: E402

LINE = (r"kernel touch was given a pointer to {} host memory in parameter {}\. "
        r"Kernels cannot reach that memory through gpurun")
OUT_OF_REACH = {"GPURUN_HOST_MEMORY": "copy"}


class HostPointers(both.Case):
    def lines(self, what, answer, env=None):
        done = self.forwarded(PROGRAM, "host_pointer", what, env=env)
        self.assertEqual((done.returncode, done.stdout), (0, f"the wait answers {answer}\nPASSED\n"), done.stderr)
        return [line for line in done.stderr.splitlines() if "host memory" in line]

    def test_message_names_kernel_and_parameter(self):
        for what, kind, parameter in (("pinned", "pinned", 1), ("registered", "registered", 1),
                                      ("structure", "pinned", 2), ("graph", "pinned", 1)):
            with self.subTest(what=what):
                (line,) = self.lines(what, 700, OUT_OF_REACH)
                self.assertTrue(re.search(LINE.format(kind, parameter), line), line)

    def test_kernels_reach_pinned_memory(self):
        for env in ({}, {"GPURUN_TRANSPORTS": "tcp"}, {"GPURUN_HOST_MEMORY": "mirror"}):
            for what in ("pinned", "structure", "graph"):
                with self.subTest(what=what, env=env):
                    self.assertEqual(self.lines(what, 0, env), [])
            self.assertEqual(len(self.lines("registered", 700, env)), 1)

    def test_other_faults_and_pointers_print_no_message(self):
        self.assertEqual(self.lines("wild", 700), [])
        self.assertEqual(self.lines("not-followed", 0), [])
        self.assertEqual(self.lines("device", 0), [])


if __name__ == "__main__":
    both.main()
