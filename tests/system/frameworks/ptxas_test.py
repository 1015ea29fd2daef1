#!/usr/bin/env python3
"""Ptxas: whatever function starts a ptxas under gpurun with an emulated device, its output carries
its PTX, and a kernel of it runs. XLA, Triton and nvcc start the ptxas of their own package so."""
import os
import stat
import struct
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../support"))
import world  # noqa: E402

PROGRAM = os.path.join(world.ARGS.build, "tests/system/frameworks/look_ups")
PTX = """.version 8.0
.target sm_80
.address_size 64
.visible .entry answer(.param .u64 out) {
  .reg .b64 %d; .reg .b32 %r;
  ld.param.u64 %d, [out]; mov.u32 %r, 42; st.global.u32 [%d], %r; ret;
}
"""
# Plays ptxas: writes a small ELF image without code, prints its words, and fails for a text without a target.
PTXAS = """#!{python}
import struct, sys
words = sys.argv[1:]
print("ptxas", *words, flush=True)
if "--version" in words:
    sys.exit(0)
out = words[words.index("-o") + 1] if "-o" in words else words[-1].split("=")[1]
source = [word for word in words if word[0] != "-"][0]
if ".target" not in open(source).read():
    print("ptxas " + source + ", line 1; fatal   : no target", file=sys.stderr)
    sys.exit(255)
names = b"\\0.shstrtab\\0"
section = lambda name, kind, at, size: struct.pack("<IIQQQQIIQQ", name, kind, 0, 0, at, size, 0, 0, 1, 0)
header = b"\\x7fELF\\2\\1\\1" + bytes(9) + struct.pack("<HHIQQQIHHHHHH", 2, 190, 1, 0, 0, 80, 0, 64, 0, 0, 64, 2, 1)
open(out, "wb").write(header + names.ljust(16, b"\\0") + section(0, 0, 0, 0) + section(1, 3, 64, len(names)))
"""
LOAD = """
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
check = lambda result: result == 0 or sys.exit(f"CUDA error {result}")
context, module, kernel, memory = (ctypes.c_void_p() for _ in range(4))
value = ctypes.c_int()
check(cuda.cuInit(0))
check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
check(cuda.cuCtxSetCurrent(context))
check(cuda.cuModuleLoadData(ctypes.byref(module), open(sys.argv[1], "rb").read()))
check(cuda.cuModuleGetFunction(ctypes.byref(kernel), module, b"answer"))
check(cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(4)))
arguments = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.byref(memory), ctypes.c_void_p))
check(cuda.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, None, arguments, None))
check(cuda.cuMemcpyDtoH_v2(ctypes.byref(value), memory, ctypes.c_size_t(4)))
print(value.value)
"""


def entry(arch, image):
    """An entry of a fat binary with machine code."""
    image = image.ljust((len(image) + 7) // 8 * 8, b"\0")
    header = struct.pack("<HHIQIIHHIIIQ", 2, 0x101, 64, len(image), 0, 0, 7, 1, arch, 0, 0, 1)
    return header.ljust(64, b"\0") + image


class Ptxas(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.tools = self.path("tools")
        os.mkdir(self.tools)
        self.source = self.write("kernel.ptx", PTX)
        self.output = self.path("kernel.cubin")
        self.ptxas = self.write("tools/ptxas", PTXAS.format(python=sys.executable), mode=0o755)
        self.load = self.write("load.py", LOAD)

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, text, mode=0o644):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(self.path(name), mode)
        return self.path(name)

    def gpurun(self, *command, env=None, options=("--device", "emulated")):
        tools = f"{self.tools}:{os.environ['PATH']}"
        return subprocess.run(
            [world.GPURUN, "-q", *options, "--", *command],
            env=world.environment(PATH=tools, **{"GPURUN_DRIVER": None, **(env or {})}), capture_output=True,
            text=True, timeout=world.SECONDS, stdin=subprocess.DEVNULL)

    def has_ptx(self):
        with open(self.output, "rb") as file:
            return b".visible .entry answer" in file.read()

    def check(self, done, said, runs=True):
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, said, ""))
        self.assertEqual(self.has_ptx(), runs)
        loaded = self.gpurun(sys.executable, self.load, self.output)
        self.assertEqual((loaded.returncode, loaded.stdout), (0, "42\n") if runs else (1, ""), loaded.stderr)
        os.unlink(self.output)

    def test_each_function_that_starts_it(self):
        for function in ("execve", "execv", "execvp", "execvpe", "execl", "execlp", "execle", "posix_spawn",
                         "posix_spawnp", "vfork"):
            file = "ptxas" if function in ("execvp", "execvpe", "execlp", "posix_spawnp") else self.ptxas
            with self.subTest(function=function):
                done = self.gpurun(PROGRAM, "start", function, file, self.source, f"--output-file={self.output}")
                self.check(done, f"ptxas {self.source} --output-file={self.output}\n")

    def test_starts_of_python_and_shell(self):
        """Triton's, and nvcc's."""
        words = [self.ptxas, "-v", self.source, "-o", self.output]
        said = f"ptxas -v {self.source} -o {self.output}\n"
        script = f"import subprocess; subprocess.run({words!r}, check=True, close_fds=True)"
        self.check(self.gpurun(sys.executable, "-c", script), said)
        self.check(self.gpurun("sh", "-c", f"ptxas -v {self.source} -o {self.output}"), said)
        newest = self.path("tools/ptxas-blackwell")
        os.link(self.ptxas, newest)
        self.check(self.gpurun(sys.executable, "-c", script.replace(self.ptxas, newest)), said)

    def test_fat_binary_of_its_output(self):
        """As of `nvcc -gencode arch=compute_80,code=sm_80`: the newest machine code counts."""
        done = self.gpurun("sh", "-c", f"ptxas {self.source} -o {self.output}")
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(self.output, "rb") as file:
            code = file.read()
        older = code.replace(b"answer", b"nobody")
        entries = b"".join(entry(arch, image) for arch, image in ((75, older), (80, code), (70, older)))
        with open(self.output, "wb") as file:
            file.write(struct.pack("<IHHQ", 0xba55ed50, 1, 16, len(entries)) + entries)
        loaded = self.gpurun(sys.executable, self.load, self.output)
        self.assertEqual((loaded.returncode, loaded.stdout), (0, "42\n"), loaded.stderr)

    def test_words_status_and_messages_are_its_own(self):
        done = self.gpurun("sh", "-c", "ptxas --version")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "ptxas --version\n", ""))
        bad = self.write("bad.ptx", ".version 8.0\n")
        for start in (("sh", "-c", f"ptxas {bad} -o {self.output}"),
                      (PROGRAM, "start", "vfork", self.ptxas, bad, f"--output-file={self.output}")):
            done = self.gpurun(*start)
            self.assertEqual(done.returncode, 255)
            self.assertEqual(done.stderr, f"ptxas {bad}, line 1; fatal   : no target\n")
            self.assertFalse(os.path.exists(self.output))

    def test_missing_ptxas_is_missing(self):
        script = (f"import subprocess\nfor name in ('{self.folder}/ptxas', 'no/ptxas'):\n"
                  " try: subprocess.run([name])\n except FileNotFoundError: print('missing')")
        self.assertEqual(self.gpurun(sys.executable, "-c", script).stdout, "missing\nmissing\n")
        os.chmod(self.ptxas, stat.S_IRUSR)
        done = self.gpurun(PROGRAM, "start", "execv", self.ptxas, self.source, self.output)
        self.assertEqual((done.returncode, done.stdout), (1, "Permission denied\n"))

    def test_user_can_switch_it_off(self):
        done = self.gpurun("sh", "-c", f"{self.ptxas} {self.source} -o {self.output}", env={"GPURUN_CUDA_TOOLS": "off"})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertFalse(self.has_ptx())

    def test_no_other_device_changes_it(self):
        done = self.gpurun("sh", "-c", f"ptxas {self.source} -o {self.output}", options=(),
                           env={"GPURUN_DRIVER": world.DRIVERS["null"]})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertFalse(self.has_ptx())


if __name__ == "__main__":
    world.main()
