#!/usr/bin/env python3
"""Runs any_runtime on NVIDIA's shared runtime of each CUDA release that PyPI has, natively on the
emulated device and through gpurun, and writes a table. Wheels are fetched once, into the build folder.

usage: matrix.py BUILD_FOLDER [TABLE]          (docs/results/runtimes.txt is the table of a run)
Exit status 0: each runtime computed right both ways; 1: one did not; 77: no network.
"""
import glob
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))

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


def outcome(build, path, way):
    done = subprocess.run([sys.executable, "-B", os.path.join(HERE, "../run_both.py"), "--build", build,
                           "--record", "any_runtime", "--expect", "^PASSED$", way, "--",
                           os.path.join(build, "programs/any_runtime"), path],
                          capture_output=True, text=True, timeout=300)
    if done.returncode == 0:
        return "right", re.search(r"(?m)^runtime .*$", done.stdout).group()
    said = re.search(r"(?m)^FAILED.*$|^.*cuda.*rror.*$", done.stdout)
    return "WRONG: " + (said.group() if said else f"exit status {done.returncode}"), ""


def main(build, table=None):
    lines = [f"{'wheel':36} {'natively':10} {'forwarded':10} reports"]
    wrong = 0
    for package, versions in WHEELS:
        for version in versions:
            path = library(build, f"{package}=={version}")
            (native, said), (forwarded, _) = (outcome(build, path, way) for way in
                                              ("--native-only", "--forwarded-only"))
            wrong += (native, forwarded) != ("right", "right")
            lines.append(f"{package + ' ' + version:36} {native:10} {forwarded:10} {said}")
            print(lines[-1], flush=True)
    lines.append(f"{wrong} wrong" if wrong else "all right")
    if table:
        with open(table, "w", encoding="utf-8") as stream:
            stream.write("\n".join(lines) + "\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(os.path.abspath(sys.argv[1]), *sys.argv[2:]))
