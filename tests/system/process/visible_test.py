#!/usr/bin/env python3
"""CUDA_VISIBLE_DEVICES: a program sees the same devices in the same order through gpurun as
natively, for each value and however it was set. This holds for a private server and for a named
one."""
import os
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(__file__))
import both  # noqa: E402
import world  # noqa: E402
from both import PROGRAM  # noqa: E402

THREE = "devices=3"
UUIDS = [f"GPU-{0x67 + number:02x}707572-756e-2d65-6d75-6c61746564{number:02x}" for number in range(3)]
VALUES = [None, "2", "1,0", "", "-1", "7", "2,7,1", "0,-1,1", "1,1", "0,2,0", "2,", ",2", " 2 , 1 ", "+1",
          "2nd,1st", "1;2", "0x1", "99999999999999999999", "NoDevFiles", "MIG-" + UUIDS[1], "1,MIG-67", UUIDS[2],
          f"{UUIDS[1]},{UUIDS[0]}", f"{UUIDS[1]},1", "GPU-67", UUIDS[1][:-1], UUIDS[1] + "00", UUIDS[1].upper(),
          f"0,{UUIDS[2]}", "GPU-6", "GPU-68", "GPU-69,GPU-67"]


def private(*options, value=None, words=(), devices=THREE):
    return subprocess.run(
        [world.GPURUN, *options, "--device", "emulated", "--", PROGRAM, "visible", *words],
        env=world.environment(GPURUN_DRIVER=None, GPURUN_EMULATED=devices, CUDA_VISIBLE_DEVICES=value),
        capture_output=True, text=True, timeout=both.SECONDS, stdin=subprocess.DEVNULL)


def native(value=None, words=(), devices=THREE):
    return subprocess.run(
        [PROGRAM, "visible", *words], capture_output=True, text=True, timeout=both.SECONDS,
        env=both.native_environment(GPURUN_EMULATED=devices, CUDA_VISIBLE_DEVICES=value),
        stdin=subprocess.DEVNULL)


def result(done):
    return done.returncode, done.stdout, done.stderr


class VisibleDevices(unittest.TestCase):
    def same(self, *options, value=None, **both_sides):
        with self.subTest(options=options, value=value, **both_sides):
            wanted = native(value, **both_sides)
            self.assertEqual(wanted.returncode, 0, wanted.stdout)
            self.assertEqual(result(private("-q", *options, value=value, **both_sides)), result(wanted))
            return wanted.stdout.splitlines()[0]

    def test_environment_value_matches_native(self):
        for value in VALUES:
            self.same(*([] if value is not None else ["-n", "3"]), value=value)

    def test_program_sees_named_devices_in_order(self):
        self.assertEqual(self.same(value="2,0"), "init 0, count 0 2: 0000:03:00.0 0000:01:00.0")
        self.assertEqual(self.same(value="GPU-69,GPU-67"), "init 0, count 0 2: 0000:03:00.0 0000:01:00.0")
        for value in ("", "-1", "1,1", "MIG-67", "GPU-6"):
            self.assertEqual(self.same(value=value), "init 100, count 3 -1:")

    def test_value_set_by_program_matches_native(self):
        for value in ("2", "1,0", "empty", "-1", "2x"):
            self.same("-n", "3", words=(value,))
            self.same("-n", "3", words=(value, "ask"))
            self.same(value="1", words=(value,))

    def test_abbreviated_uuid_matches_native_with_one_device(self):
        for value in ("GPU-6", UUIDS[0][:-1], "GPU-", "GPU-68", "GPU-6,0"):
            self.same(value=value, devices="devices=1")

    def test_gpu_count_option_combines_with_value(self):
        for value, options in (("2", ["-n", "1"]), ("1,0", ["-n", "2"]), ("2,1", ["-n", "3"]), ("", ["-n", "1"]),
                               ("1,1", ["-n", "1"])):
            self.same(*options, value=value)
        # Of more GPUs the program sees only the first.
        self.assertEqual(result(private("-q", "-n", "1", value="2,1")), result(native("2")))
        refused = private("-q", "-n", "4", value="1")
        self.assertEqual((refused.returncode, refused.stdout), (125, ""))
        self.assertIn("4 GPUs wanted; this server has 3", refused.stderr)

    def test_named_server_applies_value(self):
        with world.Gpurund(env=world.environment(GPURUN_EMULATED=THREE)) as server:
            for value in ("2", "1,0", "", "NoDevFiles", UUIDS[1]):
                done = subprocess.run(
                    [world.GPURUN, "-n", "3", *server.options(), "--", PROGRAM, "visible"],
                    env=world.environment(CUDA_VISIBLE_DEVICES=value), capture_output=True, text=True,
                    timeout=both.SECONDS, stdin=subprocess.DEVNULL)
                self.assertEqual((done.returncode, done.stdout), (0, native(value).stdout), done.stderr)
                # A value from a batch system for other GPUs causes no message.
                said = "names no GPU of the lease, so the program sees none" in done.stderr
                self.assertEqual(said, value == "NoDevFiles", done.stderr)

    def test_server_with_value_lends_only_its_devices(self):
        """A gpurund that was started by hand with the variable lends only its devices, numbered
        from 0."""
        confined = world.environment(GPURUN_EMULATED=THREE, CUDA_VISIBLE_DEVICES=f"{UUIDS[2]},1")
        with world.Gpurund(env=confined) as server:
            done = subprocess.run([world.GPURUN, "-q", "-n", "2", *server.options(), "--", PROGRAM, "visible"],
                                  env=world.environment(), capture_output=True, text=True,
                                  timeout=both.SECONDS, stdin=subprocess.DEVNULL)
        self.assertEqual(result(done), result(native("2,1")))


if __name__ == "__main__":
    both.main()
