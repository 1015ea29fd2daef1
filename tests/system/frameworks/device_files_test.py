#!/usr/bin/env python3
"""Device files: a program under gpurun finds the files of its leased GPUs through each function of
the C library, and nothing else changes. JAX computes on the CPU where it finds no /dev/nvidia0."""
import os
import re
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../support"))
import world  # noqa: E402

PROGRAM = os.path.join(world.ARGS.build, "tests/system/frameworks/look_ups")
ADDRESSES = ("0000:01:00.0", "0000:02:00.0")
# What the frameworks look for, by their own calls: os.path.exists (JAX), std::ifstream (TensorFlow, XLA),
# os.listdir (Ray), shells and glob.
DEVICES = ("/dev/nvidia0", "/dev/nvidia1", "/dev/nvidiactl", "/dev/nvidia-uvm")
DRIVER = "/proc/driver/nvidia"
MISSING = ("/dev/nvidia2", "/dev/nvidia00", "/dev/nvidia", f"{DRIVER}/params", f"{DRIVER}/gpus/0000:05:00.0",
           "/sys/bus/pci/devices/0000:01:00.0/vendors")


@unittest.skipIf(os.path.exists("/dev/nvidiactl"), "this machine has device files of its own")
class DeviceFiles(unittest.TestCase):
    def run_with(self, *command, env=None, gpus="2"):
        done = subprocess.run(
            [world.GPURUN, "-q", "--device", "emulated", "-n", gpus, "--", *command],
            env=world.environment(GPURUN_DRIVER=None, GPURUN_EMULATED="devices=3", **(env or {})),
            capture_output=True, text=True, timeout=world.SECONDS, stdin=subprocess.DEVNULL)
        self.assertEqual(done.stderr, "")
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def answers(self, what, path, **options):
        """{function: answer}"""
        lines = self.run_with(PROGRAM, what, path, **options).splitlines()
        return dict(line.split(": ", 1) if ": " in line else (line.rstrip(":"), "") for line in lines)

    def natively(self, what, path):
        done = subprocess.run([PROGRAM, what, path], env=world.environment(), capture_output=True, text=True,
                              timeout=world.SECONDS, check=True)
        return dict(line.split(": ", 1) for line in done.stdout.splitlines())

    def test_each_function_finds_devices(self):
        for number, path in enumerate(DEVICES[:2]):
            for function, answer in self.answers("status", path).items():
                self.assertIn(answer, (f"device 195:{number}", "yes"), (path, function))
        self.assertEqual(self.answers("status", "/dev/nvidiactl")["stat"], "device 195:255")
        self.assertRegex(self.answers("status", "/dev/nvidia-uvm")["stat"], "^device ")
        self.assertEqual(len(self.answers("status", "/dev/nvidia0")), 17)

    def test_each_function_finds_files_and_folders(self):
        for path, kind in ((DRIVER, "folder"), (f"{DRIVER}/version", "file"), (f"{DRIVER}/gpus", "folder"),
                           (f"{DRIVER}/gpus/{ADDRESSES[1]}", "folder"),
                           (f"{DRIVER}/gpus/{ADDRESSES[0]}/information", "file")):
            for function, answer in self.answers("status", path).items():
                self.assertIn(answer, (f"{kind} 0:0", "yes"), (path, function))

    def test_files_have_the_driver_s_text(self):
        for path, text in ((f"{DRIVER}/version", r"NVRM version: NVIDIA UNIX \w+ Kernel Module  [\d.]+  gpurun"),
                           (f"{DRIVER}/gpus/{ADDRESSES[1]}/information", r"Model: \t\t .+")):
            answers = self.answers("open", path)
            self.assertEqual(answers.pop("for writing"), "Permission denied")
            self.assertEqual(len(answers), 10)
            for function, answer in answers.items():
                closed = r" \(closed by exec\)" if function in ("openat", "openat64") else ""
                self.assertRegex(answer, f"^{text}{closed}$", (path, function))

    def test_device_does_not_open(self):
        for function, answer in self.answers("open", "/dev/nvidia0").items():
            self.assertEqual(answer, "No such device or address", function)

    def test_folders_list_devices(self):
        natively = self.natively("list", "/dev")["scandir"].split()
        ours = ["nvidia-uvm", "nvidia0", "nvidia1", "nvidiactl"]
        for function, answer in self.answers("list", "/dev").items():
            names = [name.split("=")[-1] for name in answer.split()]
            self.assertEqual([name for name in names if name.startswith("nvidia")], ours, function)
            self.assertLessEqual(set(natively) - {"shm"}, set(names), function)
        self.assertEqual(self.answers("list", DRIVER), {
            "readdir": "d=. d=.. d=gpus f=version", "readdir64": "d=. d=.. d=gpus f=version",
            "readdir_r": "d=. d=.. d=gpus f=version", "readdir64_r": "d=. d=.. d=gpus f=version",
            "scandir": "gpus version", "scandir64": "gpus version"})
        self.assertEqual(self.answers("list", f"{DRIVER}/gpus")["scandir"], " ".join(ADDRESSES))
        self.assertEqual(self.answers("list", "/proc/driver/other")["readdir"], "No such file or directory")

    def test_patterns_match(self):
        for pattern, wanted in (("/dev/nvidia[0-9]*", "/dev/nvidia0 /dev/nvidia1"), ("/dev/nvidia?", "/dev/nvidia0 /dev/nvidia1"),
                                (f"{DRIVER}/gpus/*/information", " ".join(f"{DRIVER}/gpus/{address}/information"
                                                                          for address in ADDRESSES)),
                                ("/dev/nul*", "/dev/null")):
            self.assertEqual(self.answers("glob", pattern), {"glob": wanted, "glob64": wanted}, pattern)

    def test_other_names_are_unchanged(self):
        for path in (*MISSING, "/dev/null", "/dev", "/etc/passwd", "", "relative"):
            self.assertEqual(self.answers("status", path), self.natively("status", path), path)
        for path in (*MISSING, "/etc/passwd", "/etc", ""):
            self.assertEqual(self.answers("open", path), self.natively("open", path), path)
        self.assertEqual(self.answers("list", "/etc"), self.natively("list", "/etc"))

    def test_look_ups_of_devices_start_no_worker(self):
        """Each process of a run makes them, and most use no GPU."""
        said = self.run_with("sh", "-c", "test -e /dev/nvidia0 && ls -d /dev/nvidia* && echo $GPURUN_SESSION",
                             env={"GPURUN_STATS": "1"})
        self.assertRegex(said, r"^/dev/nvidia-uvm\n/dev/nvidia0\n/dev/nvidia1\n/dev/nvidiactl\n/proc/")

    def test_address_of_gpu_has_node_once_attached(self):
        script = ("import ctypes, os; path = '/sys/bus/pci/devices/0000:02:00.0/numa_node'; "
                  "before = os.path.exists(path); ctypes.CDLL('libcuda.so.1').cuInit(0); "
                  "print(before, open(path).read())")
        if os.path.exists("/sys/bus/pci/devices/0000:02:00.0"):
            self.skipTest("this machine has a device of that address")
        self.assertEqual(self.run_with(sys.executable, "-c", script), "False -1\n\n")

    def test_python_sees_them(self):
        script = ("import glob, os, pathlib; print(os.path.exists('/dev/nvidia0'), sorted(glob.glob('/dev/nvidia*')), "
                  f"os.listdir('{DRIVER}/gpus'), pathlib.Path('{DRIVER}/version').read_text()[:12])")
        self.assertEqual(self.run_with(sys.executable, "-c", script),
                         "True ['/dev/nvidia-uvm', '/dev/nvidia0', '/dev/nvidia1', '/dev/nvidiactl'] "
                         f"{list(ADDRESSES)} NVRM version\n")

    def test_one_gpu_has_one_device(self):
        self.assertEqual(self.answers("glob", "/dev/nvidia?", gpus="1")["glob"], "/dev/nvidia0")

    def test_user_can_switch_them_off(self):
        off = {"GPURUN_DEVICE_FILES": "off"}
        self.assertEqual(self.answers("status", "/dev/nvidia0", env=off), self.natively("status", "/dev/nvidia0"))

    def test_gpurun_within_gpurun_sees_the_machine(self):
        """The inner one would look for a driver of NVIDIA's if it saw the outer one's devices."""
        said = self.run_with("sh", "-c", f"env -u GPURUN_EMULATED {world.GPURUN} -q -- {PROGRAM} glob '/dev/nvidia?'")
        self.assertEqual(re.findall(r"(?m)^glob: (.*)$", said), ["/dev/nvidia0"])


if __name__ == "__main__":
    world.main()
