#!/usr/bin/env python3
"""Matrix: runs any_runtime on NVIDIA's shared runtime of each CUDA release on PyPI, natively on the
emulated device and through gpurun, and writes a table. Wheels are fetched once, into the build
folder.

usage: matrix.py BUILD_FOLDER [TABLE]          (docs/results/runtimes.txt is the table of a run)
Exit status 0: each runtime computed right both ways; 1: one did not; 77: no network.
"""
import glob
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import both_ways  # noqa: E402  (the path must be set first)

# The newest of each minor.
WHEELS = [
    ("nvidia-cuda-runtime-cu11", ("11.7.99", "11.8.89")),
    ("nvidia-cuda-runtime-cu12", ("12.0.146", "12.1.105", "12.2.140", "12.3.101", "12.4.127", "12.5.82",
                                  "12.6.77", "12.8.90", "12.9.79")),
    ("nvidia-cuda-runtime", ("13.0.96", "13.1.80", "13.2.86", "13.3.29", "13.4.92", "13.5.37")),
]


def library(build, requirement):
    folder = os.path.join(build, "nvidia", "runtimes", requirement.replace("==", "-"))
    done = subprocess.run([sys.executable, "-B", os.path.join(HERE, "../nvidia_library.py"), folder,
                           requirement, "3"], capture_output=True, text=True)
    if done.returncode != 0:
        print(done.stdout + done.stderr)
        sys.exit(done.returncode)
    return glob.glob(os.path.join(folder, "cu13/lib/libcudart.so.1*"))[0]


def main(build, path=None):
    table = both_ways.Table(f"{'wheel':36} {'natively':10} {'forwarded':10} reports")
    program = os.path.join(build, "programs/any_runtime")
    for package, versions in WHEELS:
        for version in versions:
            runtime = library(build, f"{package}=={version}")
            native, forwarded = both_ways.each_way(build, "any_runtime", [program, runtime], 300)
            said = re.search(r"(?m)^runtime .*$", native.output)
            table.add(f"{package + ' ' + version:36} {native.text:10} {forwarded.text:10} "
                      f"{said.group() if said else ''}", native.right and forwarded.right)
    return table.finish(path)


if __name__ == "__main__":
    sys.exit(main(os.path.abspath(sys.argv[1]), *sys.argv[2:]))
