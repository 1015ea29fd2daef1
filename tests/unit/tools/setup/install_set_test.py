#!/usr/bin/env python3
"""gpurun_install_set: its build contains every part that `cmake --install` copies, and the quickstart builds
no less. The build's install scripts name the files, and ninja names the target's inputs.

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
    """The installed files of the build folder. Text files, and files that are created at installation, are
    not built."""
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
    """The target's inputs, which `ninja -t query` indents."""
    done = subprocess.run(["ninja", "-C", BUILD, "-t", "query", target, f"CMakeFiles/{target}"],
                          capture_output=True, text=True, timeout=120, check=True)
    words = re.findall(r"(?m)^    (?:\|\|? )?(\S+)$", done.stdout)
    return {os.path.realpath(os.path.join(BUILD, word)) for word in words}


class InstallSet(unittest.TestCase):
    def test_install_set_builds_all_installed_files(self):
        files = installed_files()
        names = {os.path.basename(path) for path in files}
        self.assertLessEqual({"gpurun", "gpuctl", "gpurund", "gpurun-worker", "libcuda.so.1"}, names)
        self.assertTrue(any("nvidia-ml" in name for name in names), names)
        built = built_files("gpurun_install_set")
        missing = sorted(path for path in files if os.path.realpath(path) not in built)
        self.assertEqual(missing, [])

    def test_quickstart_builds_install_set(self):
        with open(os.path.join(SOURCE, "tools/quickstart"), encoding="utf-8") as file:
            self.assertRegex(file.read(), r"(?m)^targets=\(gpurun_install_set\)$")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
