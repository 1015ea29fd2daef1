#!/usr/bin/env python3
"""Exported names, for programs that look up names before they need them (Dr.Jit, Warp, ffmpeg,
hashcat). A name that NVIDIA's header declares and our library lacks makes them give up, or call
address 0. The test compares the preprocessed header with the exports of the client library and the
emulated device.

usage: exported_names_test.py cuda COMPILER CUDA_INCLUDE LIBRARY...
       exported_names_test.py nvml BUILD_FOLDER CUDA_INCLUDE LIBRARY...
"""
import glob
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
TESTS = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(TESTS, "programs"))
import nvidia_library  # noqa: E402  (the path must be set first)
from fetching import SKIPPED  # noqa: E402

CUDA_HEADERS = ("cuda.h", "cudaProfiler.h", "cudaGL.h", "cudaEGL.h", "cudaVDPAU.h")
# The renamings of cuda.h: the newest functions, those of each version, and the default stream of
# each thread.
CUDA_VIEWS = ([], ["-D__CUDA_API_VERSION_INTERNAL"], ["-DCUDA_API_PER_THREAD_DEFAULT_STREAM"])
NVML = "nvidia-nvml-dev==13.4.92"


def skip(why):
    print("skipped:", why)
    sys.exit(SKIPPED)


def cuda_names(compiler, include):
    if not os.path.isfile(os.path.join(include, "cudaGL.h")):
        skip("no CUDA toolkit on this machine")
    source = "".join("#include <%s>\n" % name for name in CUDA_HEADERS)
    names = set()
    for view in CUDA_VIEWS:
        text = subprocess.run([compiler, "-E", "-P", "-x", "c++", *view,
                               "-I", os.path.join(TESTS, "apigen/graphics"), "-I", include, "-"],
                              input=source, check=True, capture_output=True, text=True, timeout=50).stdout
        names |= set(re.findall(r"(?<!inline )\bCUresult\s+(cu[A-Z]\w*)\s*\(", text))
    return names


def nvml_names(build, include):
    header = os.path.join(include, "nvml.h")
    if not os.path.isfile(header):
        folder = os.path.join(build, "nvidia", "nvml")
        if not nvidia_library.fetch(folder, NVML, 1):
            skip("no nvml.h")
        header = os.path.join(folder, "cu13/include/nvml.h")
    with open(header, encoding="utf-8") as stream:
        text = re.sub(r"/\*.*?\*/|//[^\n]*", "", stream.read(), flags=re.S)
    return set(re.findall(r"DECLDIR\s+(nvml\w+)\s*\(", text))


def exported(library):
    text = subprocess.run(["nm", "-D", "--defined-only", "--format=just-symbols", library], check=True,
                          capture_output=True, text=True, timeout=50).stdout
    return set(text.split())


def main(which, tool, include, *libraries):
    names = cuda_names(tool, include) if which == "cuda" else nvml_names(tool, include)
    least = 660 if which == "cuda" else 420
    if len(names) < least:
        print("the header declares %d names, fewer than %d: it was not read" % (len(names), least))
        return 1
    lacking = 0
    for library in libraries:
        missing = sorted(names - exported(library))
        lacking += len(missing)
        print("%s lacks %d of %d: %s" % (library, len(missing), len(names), " ".join(missing)))
    return int(lacking != 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
