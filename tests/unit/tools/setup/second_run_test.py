#!/usr/bin/env python3
"""second_run: a second run forgives only failures caused by other tests running in parallel. A test that
fails again has failed, and one that passes alone is named. A sanitizer's report counts in any case, and
many failures are never forgiven.

usage: second_run_test.py SECOND_RUN COUNT_TESTS
"""
import os
import subprocess
import sys
import tempfile
import unittest

SECOND_RUN, COUNT_TESTS = sys.argv[1:]
# Fails only at the first run.
ONCE = 'test -e {0} || {{ touch {0}; echo {1}; exit 1; }}'


class SecondRun(unittest.TestCase):
    def run_twice(self, commands):
        """Name -> shell command. Returns the counts, and the second run's stderr."""
        with tempfile.TemporaryDirectory() as build:
            with open(os.path.join(build, "CTestTestfile.cmake"), "w", encoding="utf-8") as file:
                for name, command in commands.items():
                    file.write(f'add_test({name} "sh" "-c" [=[{command}]=])\n')
            report = os.path.join(build, "report.xml")
            subprocess.run(["ctest", "--test-dir", build, "--output-junit", report], timeout=60,
                           check=False, capture_output=True)
            done = subprocess.run([sys.executable, SECOND_RUN, build, report], timeout=60, check=True,
                                  capture_output=True, text=True)
            counted = subprocess.run([sys.executable, COUNT_TESTS, report], timeout=60, check=True,
                                     capture_output=True, text=True)
        return counted.stdout.split(), done.stderr

    def test_pass_on_second_run_counts_as_unstable(self):
        counts, said = self.run_twice({"good": "true", "once": ONCE.format("mark", "late")})
        self.assertEqual(counts, ["2", "0", "0", "1"])
        self.assertIn("UNSTABLE: once: ", said)
        self.assertNotIn("UNSTABLE: good", said)

    def test_repeated_failure_counts_as_failed(self):
        counts, said = self.run_twice({"bad": "echo why; false", "once": ONCE.format("mark", "late")})
        self.assertEqual(counts, ["1", "1", "0", "1"])
        self.assertNotIn("UNSTABLE: bad", said)

    def test_sanitizer_report_counts_as_failure(self):
        for report in ("WARNING: ThreadSanitizer: data race", "a.cc:3:1: runtime error: signed overflow"):
            counts, said = self.run_twice({"once": ONCE.format("mark", report)})
            self.assertEqual(counts, ["0", "1", "0", "0"], report)
            self.assertEqual(said, "")

    def test_many_failures_are_not_forgiven(self):
        counts, said = self.run_twice({f"once{i}": ONCE.format(f"mark{i}", "late") for i in range(4)})
        self.assertEqual(counts, ["0", "4", "0", "0"])
        self.assertEqual(said, "")

    def test_special_characters_in_test_name_are_literal(self):
        counts, _ = self.run_twice({"once.a+b": ONCE.format("mark", "late"), "onceXab": "true"})
        self.assertEqual(counts, ["2", "0", "0", "1"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
