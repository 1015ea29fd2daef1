#!/usr/bin/env python3
"""Sanitizer reports: what counts as a finding, and what a leak check prints about threads that it did not see
whole."""
import unittest

import reports

LEAK = "==7==ERROR: LeakSanitizer: detected memory leaks\nDirect leak of 8 byte(s)\n"
RACE = "WARNING: ThreadSanitizer: data race (pid=7)\n"
UNSEEN = ("==7==Unable to get registers from thread 9.\n",
          "==7==Could not attach to thread 9 (errno 1).\n",
          "==7==Running thread 9 was not suspended. False leaks are possible.\n")


class Finding(unittest.TestCase):
    def test_finding_returns_each_kind_of_report(self):
        for text in (LEAK, RACE, "file.cc:7:3: runtime error: signed integer overflow\n"):
            self.assertEqual(reports.finding(text), text)

    def test_finding_ignores_leaks_when_thread_is_unseen(self):
        for line in UNSEEN:
            self.assertEqual(reports.finding(line), "")
            self.assertEqual(reports.finding(line + LEAK), "")

    def test_finding_keeps_other_reports_when_thread_is_unseen(self):
        for line in UNSEEN:
            for text in (RACE, "==7==ERROR: AddressSanitizer: heap-use-after-free\n",
                         "file.cc:7:3: runtime error: signed integer overflow\n"):
                self.assertEqual(reports.finding(line + text + LEAK), text + LEAK)


if __name__ == "__main__":
    unittest.main(verbosity=2)
