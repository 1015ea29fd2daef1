#!/usr/bin/env python3
"""Torch table: runs PyTorch's wheel of PyPI (torch_checks.py, one process for each group) natively
on the emulated device and through gpurun, compares, and writes a table. The wheels (about 3 GB to
fetch, 5.5 GB on the disk) go into the build folder, once, and only with GPURUN_LARGE_DOWNLOADS=1.

usage: torch_table.py BUILD_FOLDER [TABLE]          (docs/results/torch.txt is the table of a run)
GPURUN_TORCH_GROUPS picks groups. Exit status 0: all was right and the same both ways; 1: not; 77: not
fetched.
"""
import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import both_ways  # noqa: E402  (the path must be set first)
import fetching  # noqa: E402

PACKAGES = ["torch==2.15.0", "numpy==2.4.6"]
GROUPS = ["queries", "visible_devices", "streams", "allocation", "copies", "matmul", "convolution", "libraries",
          "graphs", "processes", "sharing", "own_kernels"]
ALLOCATORS = ["backend:cudaMallocAsync", "expandable_segments:True"]
WITH_EACH_ALLOCATOR = ["streams", "allocation", "copies", "graphs", "own_kernels"]
# PyTorch shares no tensor of the backend cudaMallocAsync.
WITH_SEGMENTS = [*WITH_EACH_ALLOCATOR, "sharing"]
OF_SEVERAL_PROCESSES = ["visible_devices", "processes", "sharing"]
# The device's message about a kernel that it has no code for, printed once.
REFUSED = "emulated device: kernel .* cannot run: the image has no PTX"


def fetch(build):
    folder = os.path.join(build, "nvidia", "torch")
    if not os.path.exists(os.path.join(folder, "ready")):
        if os.environ.get("GPURUN_LARGE_DOWNLOADS") != "1":
            print("skipped: PyTorch (3 GB) is fetched only with GPURUN_LARGE_DOWNLOADS=1")
            sys.exit(fetching.SKIPPED)
        done = subprocess.run([sys.executable, "-B", os.path.join(HERE, "../environment.py"), folder,
                               *PACKAGES], env=dict(os.environ, PIP_NO_CACHE_DIR="1"))
        if done.returncode != 0:
            sys.exit(done.returncode)
    return os.path.join(folder, "bin/python")


def round_trips(build, group):
    """Round trips of the forwarded run, including those to attach. They are of one process, so
    groups of several have none."""
    if group in OF_SEVERAL_PROCESSES:
        return "-"
    with open(os.path.join(build, "exercised", "torch.json"), encoding="utf-8") as stream:
        return json.load(stream)["blocking_round_trips"]


def main(build, path=None):
    python = fetch(build)
    only = os.environ.get("GPURUN_TORCH_GROUPS")
    table = both_ways.Table(f"{PACKAGES[0]:17} {'allocator':25} {'natively':9} {'forwarded':9} round trips")
    for allocator in ["", *ALLOCATORS]:
        segments = WITH_SEGMENTS if allocator.startswith("expandable") else WITH_EACH_ALLOCATOR
        for group in segments if allocator else GROUPS:
            if only and group not in only.split(","):
                continue
            options = ["--env", "PYTORCH_CUDA_ALLOC_CONF=" + allocator] if allocator else []
            options += ["--log", REFUSED] if group == "own_kernels" else []
            command = [python, "-B", os.path.join(HERE, "torch_checks.py"), group]
            native, forwarded = both_ways.each_way(build, "torch", command, 600, options)
            trips = round_trips(build, group) if forwarded.right else "-"
            table.add(f"{group:17} {allocator or 'its own':25} {native.text:9} {forwarded.text:9} {trips}",
                      native.right and forwarded.right)
    return table.finish(path)


if __name__ == "__main__":
    sys.exit(main(os.path.abspath(sys.argv[1]), *sys.argv[2:]))
