#!/usr/bin/env python3
"""Seeds of sample_mnist: --seed chooses the held-out digits. Otherwise the test with another split
(sample_mnist_other_split) would show nothing.

usage: seeds_test.py FOLDER_OF_LIBCUDA SAMPLE_MNIST
"""
import os
import re
import subprocess
import sys


def held_out(library, program, seed):
    env = {**os.environ, "LD_LIBRARY_PATH": library}
    done = subprocess.run([program, "--seed", str(seed), "--epochs", "1", "--accuracy-bar", "0"],
                          env=env, capture_output=True, text=True, timeout=100)
    found = re.findall(r"^held-out set: ([0-9a-f]{16})$", done.stdout, re.MULTILINE)
    if done.returncode != 0 or len(found) != 1:
        sys.exit(f"seed {seed}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    print(f"seed {seed} holds out {found[0]}")
    return found[0]


def main(library, program):
    first, again, *others = (held_out(library, program, seed) for seed in (1, 1, 7, 8))
    wrong = []
    if first != again:
        wrong.append("the same seed held out other digits")
    if len({first, *others}) != 1 + len(others):
        wrong.append("two seeds held out the same digits")
    for line in wrong:
        print("WRONG:", line)
    return 1 if wrong else 0


sys.exit(main(*sys.argv[1:3]))
