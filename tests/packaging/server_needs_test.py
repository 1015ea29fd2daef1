#!/usr/bin/env python3
"""Needs of the server: one package of daemon, worker and emulated device runs on Debian 12 and 13, and on
Ubuntu 22.04 and 24.04. The files need glibc 2.35 at most, and no library that has another name there.

usage: server_needs_test.py ELF_NEEDS GPURUND WORKER [EMULATED_LIBRARY ...]
"""
import os
import shutil
import subprocess
import sys
import unittest

ELF_NEEDS, FILES = sys.argv[1], sys.argv[2:]
# The worker shares the C++ library with a driver that has it.
OF_WORKER = "libstdc++.so.6,libgcc_s.so.1"


def elf_needs(*words):
    return subprocess.run([ELF_NEEDS, *words], capture_output=True, text=True, timeout=60)


class ServerNeeds(unittest.TestCase):
    def test_server_runs_on_oldest_system(self):
        built_on = os.confstr("CS_GNU_LIBC_VERSION").split()[1]
        if tuple(map(int, built_on.split("."))) > (2, 36):
            self.skipTest(f"SKIPPED: this machine has glibc {built_on}, and packages are built on Debian 12")
        done = elf_needs("--max-glibc", "2.35", "--only", f"libz.so.1,libzstd.so.1,{OF_WORKER}", *FILES)
        self.assertEqual(done.stderr, "")
        self.assertEqual(done.returncode, 0)
        self.assertRegex(done.stdout, r"^machine \S+\nglibc 2\.[0-9]+\n")

    def test_daemon_and_worker_need_no_other_library(self):
        for file, only in (FILES[0], ""), (FILES[1], OF_WORKER):
            done = elf_needs("--only", only, file)
            self.assertEqual((done.stderr, done.returncode), ("", 0))

    def test_check_names_symbol_and_library(self):
        done = elf_needs("--max-glibc", "2.3", FILES[0])
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"(?m)/gpurund needs \S+ of glibc 2\.[0-9]+, and 2\.3 is the newest allowed$")
        done = elf_needs("--only", "", shutil.which("readelf"))
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"(?m)needs the library lib\S+$")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
