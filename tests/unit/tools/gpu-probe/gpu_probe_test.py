#!/usr/bin/env python3
"""Runs gpu-probe on the null device and on a driver that crashes (arguments: probe, two drivers).

A probe that stops at the first bad answer, or writes invalid JSON, would waste the rare time on a machine
with a GPU.
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

PROBE, NULL_DEVICE, CRASHING_DRIVER = sys.argv[1:4]
QUESTIONS = 17
WRONG_CALLS_MIN = 600


def probe(driver, *options):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "probe.json")
        done = subprocess.run(
            [PROBE, "--libcuda", driver, "--json", path, *options],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=200, check=False)
        with open(path, encoding="utf-8") as file:
            return done, json.load(file)


class GpuProbeTest(unittest.TestCase):
    def test_each_question_has_answer_or_reason(self):
        done, report = probe(NULL_DEVICE)
        self.assertEqual(done.returncode, 0)
        self.assertEqual(len(report["questions"]), QUESTIONS)
        by_name = {question["name"]: question for question in report["questions"]}
        for name, question in by_name.items():
            self.assertIn(question["status"], ("answered", "unanswerable"), name)
            if question["status"] != "answered":
                self.assertTrue(question["reason"], name)
            self.assertIn(name.encode(), done.stdout)
        self.assertEqual(by_name["device"]["facts"]["devices"], 1)
        self.assertGreater(len(by_name["device"]["facts"]["attributes"]), 100)
        self.assertGreater(len(by_name["call_costs"]["facts"]), 20)

        calls = [fact for name, fact in by_name["wrong_calls"]["facts"].items()
                 if name.startswith("call.")]
        self.assertEqual(len(calls), by_name["wrong_calls"]["facts"]["count"])
        self.assertGreaterEqual(len(calls), WRONG_CALLS_MIN)
        self.assertEqual(len({(call["function"], call["how"]) for call in calls}), len(calls))
        # The null device checks little, but most of the calls must have been made.
        made = [call for call in calls if call["got"].split()[0].isdigit()]
        self.assertGreater(len(made), WRONG_CALLS_MIN)
        self.assertIn("101 CUDA_ERROR_INVALID_DEVICE", {call["got"] for call in made})

    def test_probe_continues_after_driver_crash(self):
        done, report = probe(CRASHING_DRIVER)
        self.assertEqual(done.returncode, 0)
        self.assertEqual(len(report["questions"]), QUESTIONS)
        by_name = {question["name"]: question for question in report["questions"]}
        device = by_name["device"]
        self.assertEqual(device["status"], "partly")
        self.assertEqual(device["facts"]["driver_version"], 13000)
        self.assertIn("killed by signal", device["reason"])
        calls = [fact for name, fact in by_name["wrong_calls"]["facts"].items()
                 if name.startswith("call.")]
        self.assertTrue(any("killed by signal" in call["got"] for call in calls))

    def test_probe_reports_missing_driver(self):
        done, report = probe("/no/such/libcuda.so", "--only", "device")
        self.assertEqual(done.returncode, 0)
        self.assertEqual(report["questions"][0]["status"], "unanswerable")
        self.assertIn("could not be opened", report["questions"][0]["reason"])

    def test_wrong_options_are_refused(self):
        done = subprocess.run([PROBE, "--nonsense"], stderr=subprocess.PIPE, timeout=20, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn(b"usage", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
