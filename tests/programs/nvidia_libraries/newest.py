#!/usr/bin/env python3
"""Newest: builds this folder's programs with the newest of NVIDIA's libraries on PyPI, runs each
natively on the emulated device and through gpurun, and writes a table. Wheels go into the build
folder, once. Those over 300 MB (cuBLAS, cuDNN) are fetched only with GPURUN_LARGE_DOWNLOADS=1.

usage: newest.py BUILD_FOLDER [TABLE]     (docs/results/nvidia-libraries.txt is the table of a run)
Exit status 0: each computed right both ways, or was left out by name; 1: one did not; 77: no
network.
"""
import glob
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
sys.path.insert(0, os.path.dirname(HERE))
import both_ways  # noqa: E402  (the path must be set first)

# Headers and shared dependencies of several libraries.
COMMON = ["nvidia-cuda-runtime==13.5.37", "nvidia-cuda-crt==13.5.37", "nvidia-cuda-cccl==13.3.5.0.6",
          "nvidia-nvjitlink==13.5.37"]
CUBLAS = "nvidia-cublas==13.10.0.20"
CUSPARSE = "nvidia-cusparse==12.9.4.2"
# Programs that are not in this folder.
SOURCES = {"cublas": "../cublas_gemm/cublas_gemm.cu"}
# Program: its library, wheels, whether they are over 300 MB, arguments.
PROGRAMS = {
    "curand": ("curand", ["nvidia-curand==10.4.5.25"], False, ["all"]),
    "cufft": ("cufft", ["nvidia-cufft==12.5.0.14"], False, []),
    "cusparse": ("cusparse", [CUSPARSE], False, []),
    "cublas": ("cublas", [CUBLAS], True, []),
    "cublaslt": ("cublasLt", [CUBLAS], True, []),
    "cusolver": ("cusolver", ["nvidia-cusolver==12.4.1.2", CUSPARSE, CUBLAS], True, []),
    "nvrtc": ("nvrtc", ["nvidia-cuda-nvrtc==13.5.37"], False, []),
    "nccl": ("nccl", ["nvidia-nccl-cu13==2.32.3"], False, []),
    "cudnn": ("cudnn", ["nvidia-cudnn-cu13==9.28.0.42", CUBLAS, "nvidia-cuda-nvrtc==13.5.37"], True, []),
}


def folders(folder, wheels, name):
    return [found for wheel in wheels
            for found in glob.glob(os.path.join(folder, wheel, "nvidia/*", name))]


def build(name, library, folder, wheels, build_folder):
    """Builds the program, with a run path to the wheels."""
    includes = folders(folder, wheels, "include") + folders(folder, wheels, "include/cccl")
    libraries = folders(folder, wheels, "lib")
    program = os.path.join(folder, name)
    found = [path for path in libraries if glob.glob(f"{path}/lib{library}.so.*")][0]
    runtime = folders(folder, wheels, "lib/libcudart.so.13")[0]
    source = os.path.join(HERE, SOURCES.get(name, name + ".cc"))
    words = ["c++", "-std=c++17", "-O1", "-x", "c++", source, "-x", "none", "-o", program]
    words += ["-I" + path for path in [ROOT, *includes]]
    words += [glob.glob(f"{found}/lib{library}.so.*")[0], runtime]
    if name == "nvrtc":
        words.append(os.path.join(build_folder, "lib/gpurun/emulated/libcuda.so.1"))
    words += [f"-Wl,-rpath,{path}" for path in libraries] + ["-Wl,--disable-new-dtags"]
    words += ["-Wl,--allow-shlib-undefined"]
    subprocess.run(words, check=True)
    return program


def main(build_folder, path=None):
    folder = os.path.join(build_folder, "nvidia", "newest")
    large = os.environ.get("GPURUN_LARGE_DOWNLOADS") == "1"
    only = os.environ.get("GPURUN_NEWEST")
    table = both_ways.Table(f"{'program':10} {'library':32} {'natively':10} forwarded")
    for name, (library, wheels, is_large, arguments) in PROGRAMS.items():
        if only and name not in only.split(","):
            continue
        if is_large and not large:
            table.add(f"{name:10} {wheels[0]:32} not fetched: GPURUN_LARGE_DOWNLOADS is not 1")
            continue
        both_ways.fetch_wheels(folder, COMMON + wheels)
        program = build(name, library, folder, COMMON + wheels, build_folder)
        native, forwarded = both_ways.each_way(build_folder, "newest_library", [program, *arguments], 900)
        table.add(f"{name:10} {wheels[0]:32} {native.text:10} {forwarded.text}", native.right and forwarded.right)
    return table.finish(path)


if __name__ == "__main__":
    sys.exit(main(os.path.abspath(sys.argv[1]), *sys.argv[2:]))
