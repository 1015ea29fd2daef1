#!/usr/bin/env python3
"""Builds on machines that lack optional parts: configures the tree anew without them, and walks the
whole graph of the build. This finds a target that depends on a missing part.

usage: configures.py SOURCE BUILD DEPS_DIR no-cuda|no-emulated [TARGET ...]
BUILD is made anew. The targets are also built: one file after the other and by the machine's own
compiler, where tools/check takes clang and several files at once.
"""
import os
import re
import shutil
import subprocess
import sys

# The options that hide the machine's part, a text that the tests' names must contain, and one that
# they must not.
VARIANTS = {
    "no-cuda": (["-DGPURUN_NVCC=", "-DGPURUN_CUDA_INCLUDE="], "cuda_programs", "sample_mnist"),
    "no-emulated": (["-DGPURUN_EMULATED=OFF"], "control_test", "_emulated"),
}


def run(*command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        print(done.stdout)
        sys.exit(f"FAILED: {' '.join(command)}")
    return done.stdout


def without_rerun(build):
    """Returns the name of the graph without the rule that regenerates it, because ninja -n would
    stop there."""
    with open(os.path.join(build, "build.ninja"), encoding="utf-8") as file:
        text = file.read()
    text, count = re.subn(r"(?m)^build build\.ninja: RERUN_CMAKE (?:.*\$\n)*.*\n(?:  .*\n)*", "", text)
    if count != 1:
        sys.exit("FAILED: no rule to make build.ninja again")
    with open(os.path.join(build, "whole.ninja"), "w", encoding="utf-8") as file:
        file.write(text)
    return "whole.ninja"


def main(source, build, deps, variant, *targets):
    words, there, not_there = VARIANTS[variant]
    shutil.rmtree(build, ignore_errors=True)
    said = run("cmake", "-G", "Ninja", "-S", source, "-B", build, f"-DGPURUN_DEPS_DIR={deps}",
               "-DGPURUN_WERROR=ON", *words)
    if "CMake Warning" in said:
        sys.exit("FAILED: it warns:\n" + said)
    with open(os.path.join(build, "CMakeCache.txt"), encoding="utf-8") as file:
        if variant == "no-emulated" and "LLVM_DIR" in file.read():
            sys.exit("FAILED: it looks for LLVM")
    steps = run("ninja", "-C", build, "-f", without_rerun(build), "-n", "all").splitlines()
    last = re.match(r"\[(\d+)/(\d+)\]", steps[-1] if steps else "")
    if last is None or last.group(1) != last.group(2) or int(last.group(2)) < 300:
        sys.exit("FAILED: this is no whole build:\n" + "\n".join(steps[-5:]))
    tests = " ".join(re.findall(r"Test +#\d+: (\S+)", run("ctest", "--test-dir", build, "-N")))
    for text, wanted in ((there, True), (not_there, False)):
        if (text in tests) != wanted:
            sys.exit(f"FAILED: {text} {'lacks' if wanted else 'stands'} among the tests:\n{tests}")
    if targets:
        run("ninja", "-C", build, *targets)
    print(f"{variant}: {last.group(2)} steps, {len(tests.split())} tests")


main(*sys.argv[1:])
