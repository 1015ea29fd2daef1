#!/usr/bin/env python3
"""Builds this folder's programs with the newest of NVIDIA's libraries on PyPI, runs each natively on the
emulated device and through gpurun, and writes a table. Wheels go into the build folder, once; those over
300 MB (cuBLAS, cuDNN) are fetched only with GPURUN_LARGE_DOWNLOADS=1.

usage: newest.py BUILD_FOLDER [TABLE]     (docs/results/nvidia-libraries.txt is the table of a run)
Exit status 0: each computed right both ways, or was left out by name; 1: one did not; 77: no network.
"""
import glob
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import fetching  # noqa: E402  (the path must be set first)

# Headers and what several libraries need.
COMMON = ["nvidia-cuda-runtime==13.5.37", "nvidia-cuda-crt==13.5.37", "nvidia-cuda-cccl==13.3.5.0.6",
          "nvidia-nvjitlink==13.5.37"]
CUBLAS = "nvidia-cublas==13.10.0.20"
CUSPARSE = "nvidia-cusparse==12.9.4.2"
# Program: what it links with, wheels, whether they are over 300 MB, arguments.
PROGRAMS = {
    "curand": ("curand", ["nvidia-curand==10.4.5.25"], False, ["all"]),
    "cufft": ("cufft", ["nvidia-cufft==12.5.0.14"], False, []),
    "cusparse": ("cusparse", [CUSPARSE], False, []),
    "cublaslt": ("cublasLt", [CUBLAS], True, []),
    "cusolver": ("cusolver", ["nvidia-cusolver==12.4.1.2", CUSPARSE, CUBLAS], True, []),
    "nvrtc": ("nvrtc", ["nvidia-cuda-nvrtc==13.5.37"], False, []),
    "nccl": ("nccl", ["nvidia-nccl-cu13==2.32.3"], False, []),
    "cudnn": ("cudnn", ["nvidia-cudnn-cu13==9.28.0.42", CUBLAS, "nvidia-cuda-nvrtc==13.5.37"], True, []),
}


def fetch(folder, wheels):
    """Each wheel once into folder/site; what is there is not asked for again."""
    missing = [w for w in wheels if not os.path.exists(os.path.join(folder, "ready-" + w))]
    if not missing:
        return
    environment = os.path.join(folder, "venv")
    if not os.path.exists(os.path.join(environment, "bin/pip")):
        subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    for wheel in missing:
        fetching.fetch(f"{wheel} (PyPI)",
                       [os.path.join(environment, "bin/pip"), *fetching.PIP, "install", "--no-deps",
                        "--no-cache-dir", "--upgrade", "--target", os.path.join(folder, wheel), wheel])
        with open(os.path.join(folder, "ready-" + wheel), "w", encoding="utf-8"):
            pass


def folders(folder, wheels, name):
    return [found for wheel in wheels
            for found in glob.glob(os.path.join(folder, wheel, "nvidia/*", name))]


def build(name, library, folder, wheels, build_folder):
    """The program; its run path leads to the wheels."""
    includes = folders(folder, wheels, "include") + folders(folder, wheels, "include/cccl")
    libraries = folders(folder, wheels, "lib")
    program = os.path.join(folder, name)
    found = [path for path in libraries if glob.glob(f"{path}/lib{library}.so.*")][0]
    runtime = folders(folder, wheels, "lib/libcudart.so.13")[0]
    words = ["c++", "-std=c++17", "-O1", os.path.join(HERE, name + ".cc"), "-o", program]
    words += ["-I" + path for path in includes]
    words += [glob.glob(f"{found}/lib{library}.so.*")[0], runtime]
    if name == "nvrtc":
        words.append(os.path.join(build_folder, "lib/gpurun/emulated/libcuda.so.1"))
    words += [f"-Wl,-rpath,{path}" for path in libraries] + ["-Wl,--disable-new-dtags"]
    words += ["-Wl,--allow-shlib-undefined"]
    subprocess.run(words, check=True)
    return program


def outcome(build_folder, program, arguments, way):
    try:
        done = subprocess.run([sys.executable, "-B", os.path.join(HERE, "../run_both.py"), "--build",
                               build_folder, "--record", "newest_library", "--expect", "^PASSED$", way,
                               "--", program, *arguments],
                              capture_output=True, text=True, timeout=900)
    except subprocess.TimeoutExpired:
        return "WRONG: it did not end"
    if done.returncode == 0:
        return "right"
    said = re.search(r"(?m)^FAILED.*$", done.stdout)
    what = said.group() if said else done.stdout[-300:]
    return "WRONG: " + re.sub(r"/\S*/", "", what)[:100]


def main(build_folder, table=None):
    folder = os.path.join(build_folder, "nvidia", "newest")
    os.makedirs(folder, exist_ok=True)
    large = os.environ.get("GPURUN_LARGE_DOWNLOADS") == "1"
    only = os.environ.get("GPURUN_NEWEST")
    lines = [f"{'library':32} {'natively':10} forwarded"]
    wrong = 0
    for name, (library, wheels, is_large, arguments) in PROGRAMS.items():
        if only and name not in only.split(","):
            continue
        if is_large and not large:
            lines.append(f"{wheels[0]:32} not fetched: GPURUN_LARGE_DOWNLOADS is not 1")
            print(lines[-1], flush=True)
            continue
        fetch(folder, COMMON + wheels)
        program = build(name, library, folder, COMMON + wheels, build_folder)
        results = [outcome(build_folder, program, arguments, way)
                   for way in ("--native-only", "--forwarded-only")]
        wrong += results != ["right", "right"]
        lines.append(f"{wheels[0]:32} {results[0]:10} {results[1]}")
        print(lines[-1], flush=True)
    lines.append(f"{wrong} wrong" if wrong else "all right")
    if table:
        with open(table, "w", encoding="utf-8") as stream:
            stream.write("\n".join(lines) + "\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(os.path.abspath(sys.argv[1]), *sys.argv[2:]))
