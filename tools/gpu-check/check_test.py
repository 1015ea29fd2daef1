#!/usr/bin/env python3
"""Tests gpu-check without a GPU: what it packs, how it ends a hanging program, and its output without a GPU.

usage: check_test.py BUILD"""
import importlib.machinery
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.dont_write_bytecode = True
import sections  # noqa: E402
from outcome import Report  # noqa: E402

BUILD = os.path.abspath(sys.argv.pop(1))


def script(name):
    loader = importlib.machinery.SourceFileLoader(name, os.path.join(HERE, name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module


class Check(unittest.TestCase):
    def test_what_only_the_emulated_device_can_is_not_packed(self):
        tests = {test["name"]: test for test in script("bundle").both_ways(BUILD)}
        if not os.path.exists(os.path.join(BUILD, "programs/sample_mnist")):
            self.skipTest("no CUDA programs are built here")
        self.assertIn("sample_mnist", tests)
        self.assertIn("driver_module_images", tests)
        self.assertEqual(tests["sample_mnist"]["program"][0], os.path.join(BUILD, "programs/sample_mnist"))
        for name in ("driver_peers", "driver_waiting_calls", "no_ptx", "sample_mnist_null_device", "wrong_calls"):
            self.assertNotIn(name, tests)

    def test_a_run_that_hangs_is_ended_as_a_whole_and_its_threads_are_told(self):
        with tempfile.TemporaryDirectory() as folder:
            mark = os.path.join(folder, "child")
            inner = f"import os, time; open({mark!r}, 'w').write(str(os.getpid())); time.sleep(600)"
            outer = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {inner!r}])"
            status, _, said, _ = sections.run([sys.executable, "-c", outer], 3, env=dict(os.environ))
            self.assertIsNone(status)
            with open(mark, encoding="utf-8") as file:
                child = int(file.read())
            self.assertRegex(said, rf"(?m)^{child} {child} python")
            until = time.monotonic() + 20
            while os.path.exists(f"/proc/{child}/cmdline") and time.monotonic() < until:
                with open(f"/proc/{child}/stat", encoding="utf-8") as file:
                    if file.read().rpartition(")")[2].split()[0] == "Z":
                        break
            else:
                self.assertLess(time.monotonic(), until, "the child lives on")

    def test_what_is_wrong_is_counted_and_its_output_kept(self):
        with tempfile.TemporaryDirectory() as folder:
            report = Report(folder)
            report.begin("some", "a section")
            report.row("good", True, "right", "not kept")
            report.row("bad", False, "differs", "what it said")
            report.end()
            report.log.close()
            with open(os.path.join(folder, "gpu-check.json"), encoding="utf-8") as file:
                rows = json.load(file)["sections"]["some"]["rows"]
            self.assertEqual([row["right"] for row in rows], [True, False])
            with open(os.path.join(folder, "gpu-check.log"), encoding="utf-8") as file:
                self.assertEqual(file.read(), "==== bad: differs\nwhat it said\n")
            with open(os.path.join(folder, "gpu-check.txt"), encoding="utf-8") as file:
                self.assertTrue(file.read().endswith("1 wrong\n"))

    def test_without_a_gpu_it_says_so(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([sys.executable, "-B", os.path.join(HERE, "run"), folder, "--build", BUILD],
                                  env={**os.environ, "PATH": folder}, capture_output=True, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stderr, "gpu-check: nvidia-smi finds no GPU here\n")
        wrong = subprocess.run([sys.executable, "-B", os.path.join(HERE, "run"), folder, "--only", "nothing"],
                               capture_output=True, text=True)
        self.assertEqual(wrong.returncode, 2)
        self.assertIn("no section nothing", wrong.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
