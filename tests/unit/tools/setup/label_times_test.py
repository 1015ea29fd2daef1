#!/usr/bin/env python3
"""label_times: a label over its time budget is reported. The budgets are those of the table in
docs/testing.md, which has one for every label of a test.

usage: label_times_test.py LABEL_TIMES BUILD_FOLDER
"""
import importlib.machinery
import importlib.util
import os
import subprocess
import sys
import tempfile
import unittest

PROGRAM, BUILD = sys.argv[1:]
loader = importlib.machinery.SourceFileLoader("label_times", PROGRAM)
label_times = importlib.util.module_from_spec(importlib.util.spec_from_loader("label_times", loader))
loader.exec_module(label_times)

REPORT = """<?xml version="1.0" encoding="UTF-8"?>
<testsuite name="Linux">{}</testsuite>
"""
CASE = '<testcase name="{}" time="{}" status="run"/>'
LABELS = {"a": "unit", "b": "unit", "c": "e2e"}


class LabelTimes(unittest.TestCase):
    def said(self, preset, *cases, jobs=2):
        with tempfile.NamedTemporaryFile("w", suffix=".xml") as report:
            report.write(REPORT.format("".join(CASE.format(*case) for case in cases)))
            report.flush()
            took = {}
            label_times.add_times(took, report.name, LABELS, jobs)
            return list(label_times.lines(preset, took, {"unit": 60.0, "e2e": 120.0, "asan preset": 100.0}))

    def test_label_time_is_sum_of_test_times_divided_by_jobs(self):
        self.assertEqual(self.said("dev", ("a", 30), ("b", 50.5), ("c", 10)),
                         ["  e2e: 5 s of 120 s", "  unit: 40 s of 60 s"])

    def test_more_jobs_reduce_label_time(self):
        self.assertEqual(self.said("dev", ("c", 60), jobs=6), ["  e2e: 10 s of 120 s"])

    def test_label_over_budget_gets_warning(self):
        self.assertIn("WARNING: dev: unit took 70 s, more than its budget of 60 s (docs/testing.md)",
                      self.said("dev", ("a", 140), ("c", 10)))

    def test_sanitizer_preset_has_one_budget(self):
        self.assertEqual(self.said("asan", ("b", 140), ("c", 20)),
                         ["  asan preset: 80 s of 100 s", "  e2e: 10 s", "  unit: 70 s"])
        self.assertTrue(any(line.startswith("WARNING: asan: asan preset took 105 s")
                            for line in self.said("asan", ("a", 140), ("c", 70))))

    def test_budget_table_lists_each_label_and_sanitizer(self):
        budgets = label_times.budgets()
        labels = set(label_times.labels(BUILD, budgets).values())
        self.assertGreater(len(labels), 3)
        self.assertLessEqual(labels | {"asan preset", "tsan preset"}, set(budgets))
        self.assertTrue(all(seconds > 0 for seconds in budgets.values()))

    def test_labels_prefers_label_with_budget(self):
        with tempfile.TemporaryDirectory() as build:
            with open(os.path.join(build, "CTestTestfile.cmake"), "w", encoding="utf-8") as file:
                for name, labels in (("a", "unit;one_thread"), ("b", "unit"), ("c", "not_sanitized;e2e"),
                                     ("d", "another"), ("e", "")):
                    file.write(f'add_test({name} "true")\n'
                               f'set_tests_properties({name} PROPERTIES LABELS "{labels}")\n')
            self.assertEqual(label_times.labels(build, label_times.budgets()),
                             {"a": "unit", "b": "unit", "c": "e2e", "d": "another"})

    def test_unreadable_report_prints_notice_and_exits_with_zero(self):
        done = subprocess.run([sys.executable, PROGRAM, BUILD, "dev", "2:" + os.devnull], timeout=60,
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 0)
        self.assertIn("no time per label", done.stdout)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
