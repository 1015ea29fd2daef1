#!/usr/bin/env python3
"""Injected faults: sanitizers are loaded in time, into every process, and their reports arrive. A sanitizer
that is loaded too late, or a lost report, would look like success. A program runs through gpurun, with
client library, gpurun, daemon and worker of a sanitizer's build. A fault injected into any of them
(base/injected_fault.h) must be reported by that process and fail a watched run (watched.py). Without a fault
nothing may be reported.

usage: injected_faults_test.py BUILD_FOLDER SANITIZER PROGRAM DRIVER   (SANITIZER: address or thread)
"""

import os
import re
import subprocess
import sys
import unittest

BUILD, SANITIZER, PROGRAM, DRIVER = sys.argv[1:]
# Kind of flaw -> the text of its report: clang's, or g++'s (reports.py says why).
FLAWS = {"address": {"overflow": "heap-buffer-overflow",
                     "undefined": "signed integer overflow|AddressSanitizer: ABRT"},
         "thread": {"race": "data race"}}[SANITIZER]
WATCHED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "watched.py")
SECONDS = 60


def run(flaw=None):
    """A watched run, with this fault in its processes or without one."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("GPURUN_")}
    environment["GPURUN_DRIVER"] = DRIVER
    if flaw is not None:
        environment["GPURUN_INJECTED_FAULT"] = flaw
    return subprocess.run([sys.executable, WATCHED, os.path.join(BUILD, "bin/gpurun"), "-q", "--",
                           PROGRAM], env=environment, capture_output=True, text=True,
                          timeout=SECONDS, stdin=subprocess.DEVNULL)


class InjectedFaults(unittest.TestCase):
    def test_run_without_fault_reports_nothing(self):
        done = run()
        self.assertEqual((done.returncode, done.stdout), (0, "PASSED\n"), done.stderr)

    def expect(self, where, process):
        for flaw, words in FLAWS.items():
            with self.subTest(flaw=flaw):
                done = run(f"{where}-{flaw}")
                self.assertNotEqual(done.returncode, 0, done.stdout + done.stderr)
                reporters = re.findall(r"(?m)^WRONG: the sanitizer reports of (.*):$", done.stdout)
                self.assertEqual(reporters, [process], done.stdout + done.stderr)
                self.assertRegex(done.stdout, words)
                self.assertIn("injected_fault", done.stdout)

    def test_program_reports_client_library_fault(self):
        self.expect("client", os.path.basename(PROGRAM))

    def test_worker_reports_its_fault(self):
        self.expect("worker", "gpurun-worker")

    def test_daemon_reports_its_fault(self):
        self.expect("daemon", "gpurund")

    def test_gpurun_reports_its_fault(self):
        self.expect("gpurun", "gpurun")

    @unittest.skipUnless(SANITIZER == "thread", "ThreadSanitizer's list")
    def test_table_of_openssl_is_no_race(self):
        program = os.path.join(BUILD, "tests/unseen_locks")
        for which, races in (("table", False), ("other", True)):
            with self.subTest(which=which):
                done = subprocess.run([sys.executable, WATCHED, program, which], capture_output=True, text=True,
                                      timeout=SECONDS, stdin=subprocess.DEVNULL)
                self.assertEqual(done.returncode != 0, races, done.stdout + done.stderr)
                self.assertEqual("data race" in done.stdout, races, done.stdout)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
