#!/usr/bin/env python3
"""Compilers in the program's own process: under gpurun with an emulated device a compilation to
machine code makes line information, however the program reaches NVRTC or nvPTXCompiler, and the
device runs the PTX in it. dlsym() means what it meant before. With the machine's NVRTC and nvcc,
kernels of their machine code run."""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../support"))
import world  # noqa: E402

FOLDER = os.path.join(world.ARGS.build, "tests/system/frameworks")
CUDA = os.environ.get("CUDA_PATH", "/usr/local/cuda")
NVRTC = os.path.join(CUDA, "lib64/libnvrtc.so")
NVCC = shutil.which("nvcc") or os.path.join(CUDA, "bin/nvcc")
LINES = "--generate-line-info"
START = """
import ctypes, sys
pointer, byref = ctypes.c_void_p, ctypes.byref
words = lambda *options: (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
def check(result):
    if result != 0:
        sys.exit(f"error {result}")
def answer(image):
    cuda = ctypes.CDLL("libcuda.so.1")
    context, module, kernel, memory = (pointer() for _ in range(4))
    value = ctypes.c_int()
    check(cuda.cuInit(0))
    check(cuda.cuDevicePrimaryCtxRetain(byref(context), 0))
    check(cuda.cuCtxSetCurrent(context))
    check(cuda.cuModuleLoadData(byref(module), image))
    check(cuda.cuModuleGetFunction(byref(kernel), module, b"answer"))
    check(cuda.cuMemAlloc_v2(byref(memory), ctypes.c_size_t(4)))
    arguments = (pointer * 1)(ctypes.cast(byref(memory), pointer))
    check(cuda.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, None, arguments, None))
    check(cuda.cuMemcpyDtoH_v2(byref(value), memory, ctypes.c_size_t(4)))
    return value.value
"""
COMPILE = START + """
nvrtc = ctypes.CDLL(sys.argv[1])
program, size = pointer(), ctypes.c_size_t()
source = b'extern "C" __global__ void answer(int* out) { *out = 42; }'
check(nvrtc.nvrtcCreateProgram(byref(program), source, b"answer.cu", 0, None, None))
check(nvrtc.nvrtcCompileProgram(program, 1, words("-arch=sm_80")))
check(nvrtc.nvrtcGetCUBINSize(program, byref(size)))
image = ctypes.create_string_buffer(size.value)
check(nvrtc.nvrtcGetCUBIN(program, image))
print(answer(image.raw))
"""


class Compilers(unittest.TestCase):
    def python(self, script, *words, env=None):
        done = subprocess.run(
            [world.GPURUN, "-q", "--device", "emulated", "--", sys.executable, "-c", script, *words],
            env=world.environment(GPURUN_DRIVER=None, **(env or {})), capture_output=True, text=True,
            timeout=world.SECONDS, stdin=subprocess.DEVNULL)
        return done

    def said(self, script, env=None):
        done = self.python(START + script, FOLDER, env=env)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout

    def test_functions_that_are_looked_up(self):
        script = """
compiler = ctypes.CDLL(sys.argv[1] + "/libnvrtc.so.13")
check(compiler.nvrtcCompileProgram(None, 2, words("-arch=sm_80", "-std=c++17")))
check(compiler.nvrtcCompileProgram(None, 1, words("-arch=compute_80")))
check(compiler.nvPTXCompilerCompile(None, 1, words("--gpu-name=sm_80")))
"""
        self.assertEqual(self.said(script), f"nvrtc -arch=sm_80 -std=c++17 {LINES}\nnvrtc -arch=compute_80\n"
                                            f"ptx --gpu-name=sm_80 {LINES}\n")
        self.assertEqual(self.said(script, env={"GPURUN_CUDA_TOOLS": "off"}),
                         "nvrtc -arch=sm_80 -std=c++17\nnvrtc -arch=compute_80\nptx --gpu-name=sm_80\n")

    def test_functions_that_are_linked(self):
        for mode in ("ctypes.RTLD_LOCAL", "ctypes.RTLD_GLOBAL"):
            with self.subTest(mode=mode):
                said = self.said(f'check(ctypes.CDLL(sys.argv[1] + "/libcompiler_caller.so", {mode}).compile_by_name())')
                self.assertEqual(said, f"nvrtc -arch=sm_80 {LINES}\n")

    def test_look_up_behind_the_caller(self):
        said = self.said('print(ctypes.CDLL(sys.argv[1] + "/libcompiler_caller.so").number_behind())\n'
                         "try: ctypes.CDLL(None).no_such_function\n"
                         'except AttributeError as error: print("no_such_function" in str(error))')
        self.assertEqual(said, "2\nTrue\n")

    def look_ups(self, env=None):
        """The lines of a program that looks compilers up before and after it loads one."""
        done = subprocess.run([world.GPURUN, "-q", "--device", "emulated", "--", FOLDER + "/symbol_look_ups",
                               FOLDER + "/libnvrtc.so.13"],
                              env=world.environment(GPURUN_DRIVER=None, **(env or {})), capture_output=True,
                              text=True, timeout=world.SECONDS, stdin=subprocess.DEVNULL)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout.splitlines()

    def test_compiler_that_is_not_loaded_is_not_found(self):
        """A program that finds a compiler would call it, and get an error in place of its fallback."""
        self.assertEqual(self.look_ups(), ["nvrtcCompileProgram: none, dlerror() names it",
                                           "nvPTXCompilerCompile: none, dlerror() names it",
                                           f"nvrtc -arch=sm_80 {LINES}", f"ptx --gpu-name=sm_80 {LINES}",
                                           "number_of_preloaded: none, dlerror() names it"])

    def test_preloaded_dlsym_still_answers(self):
        """gpurun's dlsym() is in front of one that the user preloads, and passes look-ups on to it."""
        said = self.look_ups(env={"LD_PRELOAD": FOLDER + "/libpreloaded_dlsym.so"})
        self.assertEqual(said, ["nvrtcCompileProgram: none, dlerror() names it",
                                "nvPTXCompilerCompile: none, dlerror() names it",
                                f"nvrtc -arch=sm_80 {LINES}", f"ptx --gpu-name=sm_80 {LINES}", "7"])

    @unittest.skipUnless(os.path.exists(NVRTC), "no NVRTC on this machine")
    def test_machine_code_of_nvrtc(self):
        done = self.python(COMPILE, NVRTC)
        self.assertEqual((done.returncode, done.stdout), (0, "42\n"), done.stderr)
        done = self.python(COMPILE, NVRTC, env={"GPURUN_CUDA_TOOLS": "off"})
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("error 209", done.stderr)

    @unittest.skipUnless(os.path.exists(NVCC), "no nvcc on this machine")
    def test_linked_machine_code_of_nvcc(self):
        """The parts of a device link, with line information, or by a ptxas that gpurun starts."""
        parts = {"main.cu": '__device__ int number(); extern "C" __global__ void answer(int* out) { *out = number(); }',
                 "part.cu": "__device__ int number() { return 42; }"}
        nvcc = [NVCC, "-rdc=true", "-dlink", *parts, "-o", "image"]
        gpurun = [world.GPURUN, "-q", "--device", "emulated", "--"]
        with tempfile.TemporaryDirectory() as folder:
            for name, text in parts.items():
                with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                    file.write(text)
            for command in ([*nvcc, "-lineinfo", "-fatbin", "-gencode", "arch=compute_80,code=sm_80"],
                            [*gpurun, *nvcc, "-cubin", "-arch=sm_80"]):
                subprocess.run(command, cwd=folder, check=True, timeout=world.SECONDS,
                               env=world.environment(GPURUN_DRIVER=None))
                done = self.python(START + "print(answer(open(sys.argv[1], 'rb').read()))",
                                   os.path.join(folder, "image"))
                self.assertEqual((done.returncode, done.stdout), (0, "42\n"), done.stderr)


if __name__ == "__main__":
    world.main()
