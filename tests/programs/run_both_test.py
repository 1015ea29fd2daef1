#!/usr/bin/env python3
"""run_both.py reports every difference of two runs. With --any-order the matching lines may swap
places with one another, and nothing else may. A line that is missing, appears twice, differs or
stands among other lines is a difference.

No device takes part: one shell script replaces the program, and one replaces gpurun."""
import os
import subprocess
import sys
import tempfile
import unittest

RUN_BOTH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "run_both.py")
GPURUN = """#!/bin/sh
while [ "$1" != -- ]; do shift; done
shift
exec env FORWARDED=1 "$@"
"""
LINES = ["start", "block 0", "block 1", "block 2", "end"]


def script(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(path, 0o755)


class RunBoth(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.build = holder.name
        script(os.path.join(self.build, "lib/gpurun/emulated/libcuda.so.1"), "")
        script(os.path.join(self.build, "bin/gpurun"), GPURUN)

    def complaint(self, forwarded, *options):
        """The complaint about a program that prints LINES natively and `forwarded` through gpurun.
        Empty: none."""
        program = os.path.join(self.build, "program")
        printed = ["printf '%s\\n' " + " ".join(f"'{line}'" for line in lines) for lines in (forwarded, LINES)]
        script(program, f"#!/bin/sh\nif [ \"$FORWARDED\" ]; then {printed[0]}; else {printed[1]}; fi\n")
        done = subprocess.run([sys.executable, "-B", RUN_BOTH, "--build", self.build, *options, "--", program],
                              capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
        wrong = [line for line in done.stdout.splitlines() if line.startswith("WRONG: ")]
        self.assertEqual(done.returncode, 1 if wrong else 0, done.stdout + done.stderr)
        self.assertEqual(done.stderr, "")
        return "\n".join(wrong)

    def test_order_matters_without_any_order_option(self):
        other = ["start", "block 2", "block 0", "block 1", "end"]
        self.assertEqual(self.complaint(LINES), "")
        self.assertIn("differs from line 2: native ['block 0'], forwarded ['block 2']", self.complaint(other))
        self.assertEqual(self.complaint(other, "--any-order", "^block"), "")
        self.assertIn("differs from line 2", self.complaint(other, "--any-order", "^another"))

    def test_any_order_option_requires_same_lines(self):
        for forwarded, line in ((["start", "block 1", "block 0", "end"], 4),  # One is missing.
                                (["start", "block 2", "block 1", "block 1", "block 0", "end"], 4),
                                (["start", "block 1", "block 0", "block 1", "end"], 4),
                                (["start", "block 1", "block 7", "block 0", "end"], 4),
                                (["block 0", "start", "block 1", "block 2", "end"], 1),
                                (["start", "block 2", "block 1", "block 0"], 5),
                                (["start", "block 2", "block 1", "block 0", "End"], 5)):
            self.assertIn(f"differs from line {line}:", self.complaint(forwarded, "--any-order", "^block"),
                          forwarded)

    def test_ignore_option_excludes_matching_lines(self):
        forwarded = ["start", "block 1", "time 3", "block 0", "block 2", "end"]
        options = ["--any-order", "^block", "--ignore", "^time"]
        self.assertEqual(self.complaint(forwarded, *options), "")
        self.assertIn("differs", self.complaint(forwarded, *options[:2]))


if __name__ == "__main__":
    unittest.main(verbosity=2)
