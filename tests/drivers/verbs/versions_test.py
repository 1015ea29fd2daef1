#!/usr/bin/env python3
"""Versions: the double exports each function under the version that this machine's libibverbs has.

usage: versions_test.py EXPORTS_MAP

Ends with 77 where the machine has no libibverbs. A function that the machine's library lacks is left out: it may
be older than the double.
"""
import ctypes
import re
import sys
import unittest

SKIPPED = 77  # As ctest's SKIP_RETURN_CODE.
MAP = sys.argv.pop(1)
try:
    LIBRARY = ctypes.CDLL("libibverbs.so.1")
except OSError as why:
    print(f"skipped: {why}")
    sys.exit(SKIPPED)
PROCESS = ctypes.CDLL(None)
PROCESS.dlsym.restype = PROCESS.dlvsym.restype = ctypes.c_void_p


def exports():
    """Pairs of version and function."""
    with open(MAP, encoding="utf-8") as file:
        for version, body in re.findall(r"(IBVERBS_[\d.]+) \{(.*?)\}", file.read(), re.DOTALL):
            for name in re.findall(r"(\w+);", body):
                yield version, name


def found(name, version=None):
    words = [ctypes.c_void_p(LIBRARY._handle), name.encode()]
    return PROCESS.dlvsym(*words, version.encode()) if version else PROCESS.dlsym(*words)


class Versions(unittest.TestCase):
    def test_each_function_has_the_version_of_the_library(self):
        known = [(version, name) for version, name in exports() if found(name)]
        self.assertGreater(len(known), 30)
        self.assertEqual([each for each in known if not found(*reversed(each))], [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
