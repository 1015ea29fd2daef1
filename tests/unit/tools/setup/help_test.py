#!/usr/bin/env python3
"""Help: each of the tree's own commands describes itself. --help prints the usage and exits with 0. A wrong
option exits with 2 and prints the command's name. Nothing else happens.

usage: help_test.py SOURCE_FOLDER
"""
import os
import subprocess
import sys
import tempfile
import unittest

(ROOT,) = sys.argv[1:]


def commands():
    """The executables of tools/, and of the folders with one command."""
    found = [f"tools/{name}" for name in os.listdir(f"{ROOT}/tools") if os.path.isfile(f"{ROOT}/tools/{name}")
             and os.access(f"{ROOT}/tools/{name}", os.X_OK)]
    return sorted(found) + ["tools/gpu-probe/run", "tools/setup/setup"]


def run(command, *words):
    # A separate folder, in which the effects of a command that accepts a wrong word would show.
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([os.path.join(ROOT, command), *words], cwd=folder, capture_output=True, text=True,
                              timeout=30, stdin=subprocess.DEVNULL)
        return done, os.listdir(folder)


class Help(unittest.TestCase):
    def test_commands_include_known_tools(self):
        self.assertLessEqual({"tools/check", "tools/fuzz", "tools/quickstart"}, set(commands()))

    def test_help_prints_usage_and_exits_with_zero(self):
        for command in commands():
            for word in ("--help", "-h"):
                with self.subTest(command=command, word=word):
                    done, left = run(command, word)
                    self.assertEqual((done.returncode, done.stderr, left), (0, "", []))
                    self.assertIn(f"\nusage: {command} [", done.stdout)
                    self.assertNotRegex(done.stdout, r"(?m)^#|set -")

    def test_command_names_wrong_option(self):
        for command in commands():
            with self.subTest(command=command):
                done, left = run(command, "--no-such")
                self.assertEqual((done.returncode, done.stdout, left), (2, "", []))
                self.assertRegex(done.stderr, rf"^{os.path.basename(command)}: [^\n]*'--no-such'[^\n]*--help")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
