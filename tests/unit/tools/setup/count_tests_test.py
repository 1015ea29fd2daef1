#!/usr/bin/env python3
"""count_tests: every skip inside a passed program is counted, named or not.

usage: count_tests_test.py COUNT_TESTS
"""
import subprocess
import sys
import tempfile
import unittest
from xml.sax.saxutils import escape

PROGRAM = sys.argv[1]
CASE = '<testcase name="one" status="run"><system-out>{}</system-out></testcase>'


class CountTests(unittest.TestCase):
    def counted(self, output):
        with tempfile.NamedTemporaryFile("w", suffix=".xml") as report:
            report.write("<testsuite>" + CASE.format(escape(output)) + "</testsuite>")
            report.flush()
            done = subprocess.run([sys.executable, PROGRAM, report.name], capture_output=True,
                                  text=True, timeout=60, check=True)
        return done.stdout.strip(), done.stderr.strip()

    def test_named_skip_is_counted_and_listed(self):
        said = "test_a (m.C.test_a) ... skipped 'no network'\nRan 2 tests in 1s\n\nOK (skipped=1)\n"
        self.assertEqual(self.counted(said), ("1 0 1 0", "SKIPPED: one: test_a: no network"))

    def test_unnamed_skip_is_counted(self):
        counts, skips = self.counted("..s.\nRan 4 tests in 1s\n\nOK (skipped=1)\n")
        self.assertEqual(counts, "1 0 1 0")
        self.assertIn("unnamed skip 1", skips)

    def test_program_with_only_skips_does_not_pass(self):
        self.assertEqual(self.counted("s\nRan 1 test in 1s\n\nOK (skipped=1)\n")[0], "0 0 1 0")

    def test_program_without_skips_passes(self):
        self.assertEqual(self.counted("....\nRan 4 tests in 1s\n\nOK\n"), ("1 0 0 0", ""))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
