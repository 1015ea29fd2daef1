#!/usr/bin/env python3
"""NVIDIA's samples that run here cover the features for which they were chosen. For each sample,
samples.json quotes the text of its source that shows it: a barrier of a whole block, an operation
of a warp, work on several streams.

usage: shows_test.py FOLDER SAMPLES_JSON (FOLDER as of fetch.py)
Exit status 77: the samples have not been fetched (reported), so the test is skipped.
"""
import collections
import glob
import json
import os
import sys

EXAMPLES = "root/usr/share/doc/nvidia-cuda-toolkit/examples"
AT_LEAST = {"barrier": 4, "warp": 2, "streams": 2}


def source_of(folder, name):
    """All of the sample's own source text, comment lines left out."""
    lines = []
    for path in sorted(glob.glob(os.path.join(folder, EXAMPLES, "Samples", name, "*"))):
        if path.endswith((".cu", ".cuh", ".cpp", ".h")):
            with open(path, encoding="utf-8", errors="replace") as file:
                lines += [line for line in file if not line.lstrip().startswith(("//", "*", "/*"))]
    return "".join(lines)


def main(folder, samples_path):
    with open(samples_path, encoding="utf-8") as file:
        samples = json.load(file)["samples"]
    if not os.path.isdir(os.path.join(folder, EXAMPLES)):
        print(f"skipped: the samples are not in {folder}")
        return 77
    wrong = []
    shown = collections.defaultdict(list)
    for sample in samples:
        source = source_of(folder, sample["name"])
        if not source:
            wrong.append(f"{sample['name']}: no source")
        for what, text in sample["shows"].items():
            if what not in AT_LEAST:
                wrong.append(f"{sample['name']}: unknown word {what!r}")
            elif text not in source:
                wrong.append(f"{sample['name']}: {text!r} ({what}) is not in its source")
            else:
                shown[what].append(os.path.basename(sample["name"]))
    for what, least in AT_LEAST.items():
        print(f"{what}: {len(shown[what])} ({', '.join(shown[what])})")
        if len(shown[what]) < least:
            wrong.append(f"{what}: fewer than {least} samples")
    for line in wrong:
        print("WRONG:", line)
    return 1 if wrong else 0


sys.exit(main(*sys.argv[1:3]))
