#!/usr/bin/env python3
"""Test of the check of format: it must find each kind of violation. Ends with 77 where clang-format 14 is missing."""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

CHECK = os.path.join(os.path.dirname(os.path.abspath(__file__)), "formatted")
STYLE = os.path.join(os.path.dirname(CHECK), "../../.clang-format")
SKIPPED = 77
GOOD = {"a.cc": "int one() { return 1; }\n", "run": "#!/bin/bash\necho \"$1\"\n", "a.md": "A word.\n"}


def check(files=None):
    """(exit status, what it printed) in a checkout of the good files, with `files` in place of some."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(STYLE, os.path.join(folder, ".clang-format"))
        for name, text in {**GOOD, **(files or {})}.items():
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                file.write(text)
        subprocess.run(["git", "init", "-q", folder], check=True)
        subprocess.run(["git", "-C", folder, "add", "."], check=True)
        done = subprocess.run([CHECK, folder], capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


class Formatted(unittest.TestCase):
    def test_good_files_pass(self):
        self.assertEqual(check(), (0, ""))

    def test_each_violation_is_found(self):
        for name, text, said in (("a.cc", "int one(){return 1;}\n", "a.cc is not formatted"),
                                 ("b.h", "int  two ();\n", "b.h is not formatted"),
                                 ("run", "#!/bin/bash\ncd $1\n", "SC2164"),
                                 ("a.md", "A " + "wo" + "rng word.\n", "a.md:1")):
            status, printed = check(files={name: text})
            self.assertEqual(status, 1, name)
            self.assertIn(said, printed)


if __name__ == "__main__":
    if check()[0] == SKIPPED:
        sys.exit(SKIPPED)
    unittest.main(verbosity=2)
