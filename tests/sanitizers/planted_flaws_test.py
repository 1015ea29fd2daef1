#!/usr/bin/env python3
"""A sanitizer that is loaded too late, or not into a process at all, reports nothing, which looks like
health. Here a program runs through gpurun, with client library, daemon and worker of a sanitizer's
build; a flaw planted into client or worker (base/planted_flaw.h) must be reported by that process,
and without one nothing may be.

usage: planted_flaws_test.py BUILD_FOLDER SANITIZER PROGRAM DRIVER   (SANITIZER: address or thread)
"""

import glob
import os
import subprocess
import sys
import tempfile
import unittest

BUILD, SANITIZER, PROGRAM, DRIVER = sys.argv[1:]
FLAW, WORDS = {"address": ("overflow", "heap-buffer-overflow"),
               "thread": ("race", "data race")}[SANITIZER]
SECONDS = 60


def run(flaw):
    """(exit status, output, reports): reports by the name of the process that made them."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)  # A worker of root's daemon has a user of its own.
        # gpurun puts our library before all others; the sanitizer is in it as in the program. The
        # client's session lives to the process's end, and its threads with it.
        options = "log_path=%s/report:log_exe_name=1:verify_asan_link_order=0" % folder
        kept = {k: v for k, v in os.environ.items() if not k.startswith("GPURUN_")}
        environment = dict(kept, GPURUN_DRIVER=DRIVER, ASAN_OPTIONS=options + ":detect_leaks=0",
                           TSAN_OPTIONS=options + ":report_thread_leaks=0")
        if flaw is not None:
            environment["GPURUN_PLANTED_FLAW"] = flaw
        done = subprocess.run([os.path.join(BUILD, "bin/gpurun"), "-q", "--", PROGRAM],
                              env=environment, capture_output=True, text=True, timeout=SECONDS,
                              stdin=subprocess.DEVNULL)
        reports = {}
        for path in glob.glob(folder + "/report.*"):
            with open(path, encoding="utf-8", errors="replace") as stream:
                reports.setdefault(os.path.basename(path).split(".")[1], "")
                reports[os.path.basename(path).split(".")[1]] += stream.read()
        return done.returncode, done.stdout + done.stderr, reports


class PlantedFlaws(unittest.TestCase):
    def test_without_a_flaw_nothing_is_reported(self):
        status, output, reports = run(None)
        self.assertEqual((status, reports), (0, {}), output)
        self.assertIn("PASSED", output)

    def expect(self, where, process):
        _, output, reports = run("%s-%s" % (where, FLAW))
        self.assertEqual(list(reports), [process], output + "".join(reports.values()))
        self.assertIn(WORDS, reports[process])
        self.assertIn("planted_flaw", reports[process])

    def test_a_flaw_in_the_client_is_reported_by_the_program(self):
        self.expect("client", os.path.basename(PROGRAM))

    def test_a_flaw_in_the_worker_is_reported_by_the_worker(self):
        self.expect("worker", "gpurun-worker")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
