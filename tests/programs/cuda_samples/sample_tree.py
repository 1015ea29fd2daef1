"""Sample tree: NVIDIA's samples as Debian ships them, with their needs and their builds.

A sample is built by its own Makefile from unchanged sources. `Toolchain` replaces the Makefile's
nvcc. It asks for PTX alone, and for C++17, which the headers of CUDA 13 need. It reads
older_names.h first, because the samples are 11.8's, and CUDA 13 removed some names.
"""
import glob
import os
import re
import shlex
import stat
import subprocess

EXAMPLES = "root/usr/share/doc/nvidia-cuda-toolkit/examples"
HERE = os.path.dirname(os.path.abspath(__file__))
BUILD_SECONDS = 600

# Needs that exclude a sample, as patterns in its Makefile or its sources.
NEEDS = [
    ("display", r"findgllib\.mk|findvulkan\.mk|findegl\.mk|findglut|-lGL\b|-lEGL\b|-lvulkan\b|"
                r"D3D\w* is not supported on Linux|screen/screen\.h"),
    ("mpi", r"mpicxx|mpi\.h"),
    ("vehicle", r"-lnvsci\w*|-lcudla\b|nvmedia"),
    ("library", r"-l(cublas|cufft|curand|cusolver|cusparse|npp|nvjpeg|nvrtc|freeimage)\w*|"
                r"-lnvvm\b|libnvvm|dlopen\(.*nvrtc"),
]


class Toolchain:
    """A stand-in for nvcc in `folder`, and the settings of make that select it."""

    def __init__(self, nvcc, folder, libcuda):
        self.cuda = os.path.dirname(os.path.dirname(os.path.realpath(nvcc)))
        self.libcuda = libcuda
        self.path = os.path.join(folder, "nvcc")
        prefix = shlex.join([nvcc, "-w", "-include", os.path.join(HERE, "older_names.h")])
        with open(self.path, "w", encoding="utf-8") as file:
            file.write("#!/bin/bash\nwords=()\nwhile [ $# -gt 0 ]; do\n  case $1 in\n"
                       "    --threads) shift ;;\n"
                       "    --std=c++1[14]) words+=(--std=c++17) ;;\n"
                       "    *) words+=(\"$1\") ;;\n  esac\n  shift\ndone\n"
                       f"exec {prefix} \"${{words[@]}}\"\n")
        os.chmod(self.path, os.stat(self.path).st_mode | stat.S_IXUSR)

    def settings(self):
        return [f"NVCC={self.path}", f"CUDA_PATH={self.cuda}", f"CUDALIB={self.libcuda}", "SMS=80",
                "GENCODE_FLAGS=-gencode arch=compute_80,code=compute_80"]


class Sample:
    def __init__(self, folder):
        self.folder = folder
        self.name = os.path.basename(folder)
        self.chapter = os.path.basename(os.path.dirname(folder))

    def _text(self, *patterns):
        text = []
        for pattern in patterns:
            for path in sorted(glob.glob(os.path.join(self.folder, pattern))):
                with open(path, encoding="utf-8", errors="replace") as file:
                    text.append(file.read())
        return "\n".join(text)

    def obstacle(self):
        """Returns the first word of NEEDS that applies, with the text that shows it, or None."""
        # The rules for other machines (QNX, vehicles) also name libraries.
        makefile = "\n".join(line for line in self._text("Makefile").splitlines()
                             if "-lsocket" not in line and "-lscreen" not in line)
        text = makefile + self._text("*.c", "*.cpp", "*.cu", "*.h")
        for word, pattern in NEEDS:
            found = re.search(pattern, text)
            if found:
                return word, found.group(0)
        return None

    def command(self):
        """The program's command line from the Makefile's rule `run`, its environment first."""
        rule = re.search(r"^run: .*\n\t\$\(EXEC\) (.+)$", self._text("Makefile"), re.MULTILINE)
        return rule.group(1).split() if rule else ["./" + self.name]

    def built(self):
        return os.path.exists(os.path.join(self.folder, self.name))

    def build(self, toolchain, log):
        """Returns whether it is built. Writes make's output to the file `log`."""
        if not self.built():
            with open(log, "w", encoding="utf-8") as file:
                try:
                    subprocess.run(["make", "-C", self.folder, *toolchain.settings()], stdout=file,
                                   stderr=subprocess.STDOUT, timeout=BUILD_SECONDS)
                except subprocess.TimeoutExpired:
                    file.write(f"\nnot built in {BUILD_SECONDS} s\n")
        return self.built()


def samples(folder):
    makefiles = glob.glob(os.path.join(folder, EXAMPLES, "Samples/*/*/Makefile"))
    return [Sample(os.path.dirname(path)) for path in sorted(makefiles)]
