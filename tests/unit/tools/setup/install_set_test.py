#!/usr/bin/env python3
"""Protects a build of gpurun_install_set from lacking a part that `cmake --install` copies, and the
quickstart from building less than that. Method: the install scripts of the build name the files, ninja
names what the target depends on.

usage: install_set_test.py SOURCE BUILD
"""
import glob
import os
import re
import subprocess
import sys
import unittest

SOURCE, BUILD = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])


def installed_files():
    """Of the build folder; text files and what is made at installation are not built."""
    found = set()
    nested = os.path.join(BUILD, "configured/")  # Builds that other tests configure.
    for script in glob.glob(os.path.join(BUILD, "**/cmake_install.cmake"), recursive=True):
        if script.startswith(nested):
            continue
        with open(script, encoding="utf-8") as file:
            text = file.read()
        for names in re.findall(r"file\(INSTALL DESTINATION [^)]*? FILES((?: *\s*\"[^\"]*\")+)", text):
            found.update(name for name in re.findall(r'"([^"]*)"', names) if name.startswith(BUILD + "/"))
    return {path for path in found if "/packaging/" not in path}


def built_files(target):
    """What the target depends on: `ninja -t query` indents its inputs."""
    done = subprocess.run(["ninja", "-C", BUILD, "-t", "query", target, f"CMakeFiles/{target}"],
                          capture_output=True, text=True, timeout=120, check=True)
    words = re.findall(r"(?m)^    (?:\|\|? )?(\S+)$", done.stdout)
    return {os.path.realpath(os.path.join(BUILD, word)) for word in words}


class InstallSet(unittest.TestCase):
    def test_all_that_is_installed_is_built(self):
        files = installed_files()
        names = {os.path.basename(path) for path in files}
        self.assertLessEqual({"gpurun", "gpuctl", "gpurund", "gpurun-worker", "libcuda.so.1"}, names)
        self.assertTrue(any("nvidia-ml" in name for name in names), names)
        built = built_files("gpurun_install_set")
        missing = sorted(path for path in files if os.path.realpath(path) not in built)
        self.assertEqual(missing, [])

    def test_the_quickstart_builds_that(self):
        with open(os.path.join(SOURCE, "tools/quickstart"), encoding="utf-8") as file:
            self.assertRegex(file.read(), r"(?m)^targets=\(gpurun_install_set\)$")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
