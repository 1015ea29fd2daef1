#!/usr/bin/env python3
"""Lab: scripts in guests, seen from outside. lab.run() returns a script's status and its output, ends at its
deadline, and leaves this machine as it was. Two guests reach each other by their RDMA devices."""
import argparse
import os
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import lab
import time_stamps

PARSER = argparse.ArgumentParser()
PARSER.add_argument("--build", required=True)
WORDS, REST = PARSER.parse_known_args()
BUILD = WORDS.build
NOWHERE = "http://127.0.0.1:9"  # The discard port, with no listener.
# Both guests start it. The first one serves.
SEND = """
words="-d rxe0 -x 1 -F -e -n 100 -p 18517"
if [ $LAB_GUEST = 0 ]; then
  ib_send_lat $words & server=$!
  until grep -q ":4855 .* 0A " /proc/net/tcp; do sleep 0.05; done  # Port 18517.
  : > $LAB_SHARED/listens
  wait $server
else
  $LAB_FOLDER/guest/meet listens 120 && ib_send_lat $words 10.77.0.1
fi
"""


def processes(word):
    """Those with the word in their command line."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/cmdline", "rb") as file:
                if word.encode() in file.read():
                    found.append(int(entry))
        except OSError:
            pass
    return found


class Lab(unittest.TestCase):
    def setUp(self):
        lacks = lab.missing(BUILD)
        if lacks:
            self.skipTest(lacks)

    def test_script_has_its_status_output_and_own_changes(self):
        mark = os.path.join(lab.HERE, "mark-of-a-guest")
        done = lab.run(f'echo "$WORD"; echo below >&2; : > {mark} && ls {mark}; exit 3', build=BUILD,
                       environment={"WORD": "it's said"})
        self.assertEqual((done.status, done.output), (3, f"it's said\nbelow\n{mark}\n"))
        self.assertFalse(os.path.exists(mark))

    def test_kernel_has_the_rate_of_the_clock(self):
        done = lab.run("dmesg | sed -n 's/.*tsc: Detected \\(.*\\) MHz.*/\\1/p'", build=BUILD)
        self.assertTrue(done.output)
        for rate in done.output.split():  # Of the processor, and of its clock where the kernel finds another.
            self.assertAlmostEqual(1000 * float(rate) / time_stamps.khz(), 1, delta=0.0001)

    def test_deadline_ends_guest(self):
        # Other tests may have guests. Those of this one have files in this folder.
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(tempfile, "tempdir", folder):
            done = lab.run("echo begun; sleep 1000", build=BUILD, seconds=5)
            self.assertEqual(done.status, lab.DEADLINE)
            self.assertLess(done.seconds, 60)
            self.assertEqual(processes(folder), [])

    def test_guest_that_dies_is_an_error(self):
        with self.assertRaisesRegex(lab.LabError, "(?s)last words.*console: .*sysrq: Trigger a crash"):
            lab.run("echo last words; echo 7 > /proc/sys/kernel/printk; echo c > /proc/sysrq-trigger;"
                    "sleep 60", build=BUILD)

    def test_two_guests_exchange_messages(self):
        first, second = lab.run_two(SEND, SEND, build=BUILD)
        self.assertEqual((first.status, second.status), (0, 0), first.output + second.output)
        for each in (first, second):
            self.assertRegex(each.output, r"(?m)^ 2 +100 ")


class Skips(unittest.TestCase):
    def test_kernel_without_network_is_a_skip(self):
        lacks = lab.missing(BUILD)
        if lacks:
            self.skipTest(lacks)
        with tempfile.TemporaryDirectory() as empty:
            done = subprocess.run([sys.executable, "-B", os.path.join(lab.HERE, "debian_kernel.py"), empty],
                                  env={**os.environ, "http_proxy": NOWHERE, "https_proxy": NOWHERE},
                                  capture_output=True, text=True, timeout=240)
            self.assertEqual(done.returncode, lab.SKIPPED, done.stdout + done.stderr)
            self.assertRegex(done.stdout, r"(?m)^skipped: linux-image-.* .Debian. could not be fetched: ")
            self.assertEqual(os.listdir(os.path.join(empty, "rdma-lab")), [])

    def test_missing_program_is_a_skip(self):
        for words in (["lab.py", "--build", BUILD, "true"], ["debian_kernel.py", BUILD]):
            done = subprocess.run([sys.executable, "-B", os.path.join(lab.HERE, words[0]), *words[1:]],
                                  env={**os.environ, "PATH": "/nonexistent"}, capture_output=True, text=True,
                                  timeout=60)
            self.assertEqual(done.returncode, lab.SKIPPED, done.stderr)
            self.assertRegex(done.stdout, "^skipped: the laboratory needs Debian's .*qemu-system-x86")


if __name__ == "__main__":
    unittest.main(verbosity=2, argv=[sys.argv[0], *REST])
