#!/usr/bin/env python3
"""Needed libraries: the libraries that a program loads need only the C library of the program's
machine, and have no text relocations.

usage: needed_test.py LIBRARY ...
"""
import re
import subprocess
import sys
import unittest

LIBRARIES = sys.argv[1:]
ALLOWED = {"libc.so.6", "ld-linux-x86-64.so.2"}


class NeededLibraries(unittest.TestCase):
    def test_libraries_need_only_c_library(self):
        self.assertTrue(LIBRARIES)
        for library in LIBRARIES:
            dynamic = subprocess.run(["readelf", "--dynamic", "--wide", library], check=True,
                                     capture_output=True, text=True, timeout=60).stdout
            needed = set(re.findall(r"\(NEEDED\).*\[(.+)\]", dynamic))
            self.assertIn("libc.so.6", needed)
            self.assertLessEqual(needed, ALLOWED, library)
            self.assertNotIn("TEXTREL", dynamic)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
