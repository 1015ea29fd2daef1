#!/usr/bin/env python3
"""NVIDIA library: fetches one of NVIDIA's libraries from PyPI into a folder, for machines with a
CUDA that lacks it. Optionally builds a program with it. Only tests use it, and nothing of it is
committed.

usage: nvidia_library.py FOLDER PACKAGE==VERSION MEGABYTES [NVCC SOURCE PROGRAM LIBRARY]
More than 300 MB are fetched only when GPURUN_LARGE_DOWNLOADS is 1. Exit status 77: not fetched, or
no network (reported), so the tests that need it are skipped.
"""
import glob
import os
import shutil
import subprocess
import sys

import fetching

LARGE_MB = 300
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def fetch(folder, requirement, megabytes):
    """Returns whether the library is in `folder` afterwards."""
    ready = os.path.join(folder, "ready-" + requirement)
    if os.path.exists(ready):
        return True
    if megabytes > LARGE_MB and os.environ.get("GPURUN_LARGE_DOWNLOADS") != "1":
        print(f"skipped: {requirement} ({megabytes} MB) is fetched only with GPURUN_LARGE_DOWNLOADS=1")
        return False
    shutil.rmtree(folder, ignore_errors=True)
    environment = os.path.join(folder, "venv")
    install = fetching.make_environment(environment)
    fetching.fetch(f"{requirement} (PyPI)", [*install, "--no-deps", "--no-cache-dir",
                                             "--target", os.path.join(folder, "site"), requirement])
    shutil.rmtree(environment)
    # Up to CUDA 12 each wheel has a folder with its library's name.
    inside, = (name for name in os.listdir(os.path.join(folder, "site/nvidia"))
               if not name.startswith("__"))
    os.rename(os.path.join(folder, "site/nvidia", inside), os.path.join(folder, "cu13"))
    # The wheels have only versioned names. Linkers and clients need the plain ones.
    for library in glob.glob(os.path.join(folder, "cu13/lib/*.so.*")):
        plain = library[:library.index(".so.") + 3]
        if not os.path.lexists(plain):
            os.symlink(os.path.basename(library), plain)
    with open(ready, "w", encoding="utf-8"):
        pass
    return True


def build(folder, nvcc, source, program, library):
    if os.path.exists(program) and os.path.getmtime(program) > os.path.getmtime(source):
        return
    cuda = os.path.join(os.path.abspath(folder), "cu13")
    os.makedirs(os.path.dirname(program), exist_ok=True)
    subprocess.run([nvcc, "-std=c++17", "-O2", "-I" + ROOT, "-I" + os.path.join(cuda, "include"), source,
                    "-o", program, "-L" + os.path.join(cuda, "lib"), "-l" + library,
                    "-Xlinker=-rpath," + os.path.join(cuda, "lib")], check=True)


def main(folder, requirement, megabytes, *program):
    if not fetch(folder, requirement, int(megabytes)):
        return fetching.SKIPPED
    if program:
        build(folder, *program)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
