#!/usr/bin/env python3
"""Protects that a stranger may ask each of the tree's own commands what it does: --help prints the usage
and ends with 0, a wrong option ends with 2 and the command's name, and nothing else happens.

usage: help_test.py SOURCE_FOLDER
"""
import os
import subprocess
import sys
import tempfile
import unittest

(ROOT,) = sys.argv[1:]


def commands():
    """What of tools/ can be executed, and what folders have one command."""
    found = [f"tools/{name}" for name in os.listdir(f"{ROOT}/tools") if os.path.isfile(f"{ROOT}/tools/{name}")
             and os.access(f"{ROOT}/tools/{name}", os.X_OK)]
    return sorted(found) + ["tools/gpu-probe/run", "tools/setup/setup"]


def run(command, *words):
    # A folder of its own: what a command would make of a wrong word by mistake shows there.
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([os.path.join(ROOT, command), *words], cwd=folder, capture_output=True, text=True,
                              timeout=30, stdin=subprocess.DEVNULL)
        return done, os.listdir(folder)


class Help(unittest.TestCase):
    def test_there_are_commands(self):
        self.assertLessEqual({"tools/check", "tools/fuzz", "tools/quickstart"}, set(commands()))

    def test_help_is_usage_and_no_failure(self):
        for command in commands():
            for word in ("--help", "-h"):
                with self.subTest(command=command, word=word):
                    done, left = run(command, word)
                    self.assertEqual((done.returncode, done.stderr, left), (0, "", []))
                    self.assertIn(f"\nusage: {command} [", done.stdout)
                    self.assertNotRegex(done.stdout, r"(?m)^#|set -")

    def test_a_wrong_option_is_named(self):
        for command in commands():
            with self.subTest(command=command):
                done, left = run(command, "--no-such")
                self.assertEqual((done.returncode, done.stdout, left), (2, "", []))
                self.assertRegex(done.stderr, rf"^{os.path.basename(command)}: [^\n]*'--no-such'[^\n]*--help")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
