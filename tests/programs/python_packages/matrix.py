#!/usr/bin/env python3
"""Matrix: runs CuPy, numba-cuda and RMM from PyPI, unmodified, natively on the emulated device and
through gpurun, and writes a table of their cases. About 500 MB of wheels go into the build folder,
once. CuPy's cuBLAS, cuFFT, cuRAND, cuSOLVER and cuSPARSE are those of the machine's CUDA
(CUDA_PATH, /usr/local/cuda).

usage: matrix.py BUILD_FOLDER [TABLE]     (docs/results/python-packages.txt is the table of a run)
Exit status 0: each case is right both ways; 1: one is not; 77: no network.
"""
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import both_ways  # noqa: E402  (the path must be set first)

CLIENTS = [
    ("cupy", "cupy-cuda13x==14.2.0"),
    ("numba", "numba-cuda[cu13]==0.30.4"),
    ("rmm", "rmm-cu13==26.10.0"),
]
COMMON = ["numba==0.68.1", "numpy==2.4.6"]
SECONDS = 2400  # Each way takes minutes on two cores, most of them in NVRTC, ptxas and LLVM.


def make_environment(folder):
    packages = COMMON + [package for _, package in CLIENTS]
    done = subprocess.run([sys.executable, "-B", os.path.join(HERE, "../environment.py"), folder,
                           *packages], check=False)
    if done.returncode != 0:
        sys.exit(done.returncode)


def options(build):
    cuda = os.environ.get("CUDA_PATH", "/usr/local/cuda")
    return ["--native-env", "CUPY_COMPILE_WITH_PTX=1",
            "--native-preload", os.path.join(build, "lib/gpurun/client/libgpurun-nvjitlink.so"),
            "--env", "CUPY_CACHE_DIR=" + os.path.join(build, "python-packages-cache"),
            "--env", "PYTHONDONTWRITEBYTECODE=1", *(["--env", "CUDA_PATH=" + cuda] if os.path.exists(cuda) else [])]


def cases_of(program):
    with open(program, encoding="utf-8") as stream:
        return re.findall(r"(?m)^@case\ndef (\w+)", stream.read())


def said_of(outcome, case):
    said = re.search(rf"(?m)^{case}: (.*)$", outcome.output)
    if said is None:
        return "WRONG: it said nothing"
    return "right" if said.group(1) == "right" else "WRONG: " + re.sub(r"/\S*/", "", said.group(1))[:100]


def main(build, path=None):
    folder = os.path.join(build, "python-packages-venv")
    make_environment(folder)
    table = both_ways.Table(f"{'case':30} {'natively':10} forwarded")
    for name, package in CLIENTS:
        program = os.path.join(HERE, name + "_client.py")
        outcomes = both_ways.each_way(build, name, [os.path.join(folder, "bin/python"), "-W", "ignore", program],
                                      SECONDS, options(build))
        table.add(package, all(outcome.right for outcome in outcomes))
        for case in cases_of(program):
            native, forwarded = (said_of(outcome, case) for outcome in outcomes)
            table.add(f"  {case:28} {native:10} {forwarded}", native == forwarded == "right")
        for outcome in outcomes:
            if not outcome.right:
                print(outcome.output[-4000:], file=sys.stderr)
    return table.finish(path)


if __name__ == "__main__":
    sys.exit(main(os.path.abspath(sys.argv[1]), *sys.argv[2:]))
