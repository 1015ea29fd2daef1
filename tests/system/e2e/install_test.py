#!/usr/bin/env python3
"""Installed tree: it is complete, and works wherever it is moved to. The test runs cmake --install
into one folder, moves it, and runs from there without naming the parts.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../support"))
import world  # noqa: E402
from world import environment  # noqa: E402


class Install(unittest.TestCase):
    def check_manual(self, folder):
        """Each page names itself and has its whole source's last heading."""
        if shutil.which("go-md2man") is None:
            print("SKIPPED: the manual is not made without go-md2man")
            return
        for page, section, heading in (("gpurun", 1, "ENVIRONMENT"), ("gpuctl", 1, "DESCRIPTION"),
                                       ("gpurund", 8, "DESCRIPTION"), ("gpurun-emulated", 7, "DESCRIPTION")):
            with open(f"{folder}/man{section}/{page}.{section}", encoding="utf-8") as file:
                text = file.read()
            self.assertRegex(text, rf"(?m)^\.TH {page} {section}$")
            self.assertRegex(text, rf"(?m)^\.SH {heading}$")
            self.assertNotIn("](", text)  # A link is its words.
        if shutil.which("man"):
            shown = subprocess.run(["man", "-M", folder, "gpurun"], capture_output=True, text=True,
                                   timeout=world.SECONDS)
            self.assertIn("gpurun - run a CUDA program on GPUs of another machine", shown.stdout)

    def test_moved_install_tree_runs(self):
        with tempfile.TemporaryDirectory() as folder:
            first, second = os.path.join(folder, "first"), os.path.join(folder, "second")
            done = subprocess.run(["cmake", "--install", world.ARGS.build, "--prefix", first],
                                  capture_output=True, text=True, timeout=4 * world.SECONDS)
            self.assertEqual(done.returncode, 0, done.stderr)
            with open(f"{first}/lib/systemd/system/gpurund.service", encoding="utf-8") as file:
                unit = file.read()
            self.assertIn(f"\nExecStart={first}/bin/gpurund --config ", unit)
            document = re.search(r"(?m)^Documentation=file://(.*)$", unit)[1]
            self.assertTrue(document.startswith(first) and os.path.isfile(document), document)
            os.rename(first, second)
            for path in ("bin/gpurun", "bin/gpuctl", "bin/gpurund", "bin/gpurun-bitfusion",
                         "libexec/gpurun/gpurun-worker",
                         "lib/gpurun/client/libcuda.so", "lib/gpurun/client/libcuda.so.1",
                         "lib/gpurun/client/libgpurun-nvjitlink.so",
                         "lib/gpurun/client/libgpurun-device-files.so",
                         "lib/gpurun/client/libgpurun-cuda-tools.so", "lib/gpurun/client/gpurun-ptxas",
                         "lib/gpurun/client/libnvidia-ml.so.1",
                         "lib/systemd/system/gpurund.service", "share/gpurun/gpurund.toml"):
                self.assertTrue(os.path.exists(os.path.join(second, path)), path)
            self.check_manual(os.path.join(second, "share/man"))
            env = environment(GPURUN_CLIENT_DIR=None, GPURUN_DRIVER=None)
            if not os.path.exists("/dev/nvidiactl"):
                self.assertTrue(os.path.exists(f"{second}/lib/gpurun/emulated/libcuda.so.1"))
            done = subprocess.run([f"{second}/bin/gpurun", "--", world.ARGS.client, "where"], env=env,
                                  capture_output=True, text=True, timeout=world.SECONDS,
                                  stdin=subprocess.DEVNULL)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(done.stdout, f"0 {second}/lib/gpurun/client/libcuda.so.1\n")
            self.assertNotIn("missing", done.stderr)
            done = subprocess.run([f"{second}/bin/gpurun-bitfusion", "localhealth"], env=env, capture_output=True,
                                  text=True, timeout=world.SECONDS)
            self.assertEqual(done.returncode, 0, done.stdout)
            self.assertRegex(done.stdout, rf"(?m)^ok +libraries +{second}/lib/gpurun/client/libcuda.so.1 loads$")
            for library in ("libgpurun-nvjitlink.so", "libgpurun-cuda-tools.so", "libgpurun-device-files.so",
                            "libnvidia-ml.so.1"):
                os.unlink(f"{second}/lib/gpurun/client/{library}")
                done = subprocess.run([f"{second}/bin/gpurun", "--device", "emulated", "--", "true"], env=env,
                                      capture_output=True, text=True, timeout=world.SECONDS,
                                      stdin=subprocess.DEVNULL)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertRegex(done.stderr, f"^gpurun: warning: \\S+/{library} is missing: "
                                              ".*gpurun_install_set\n$")


if __name__ == "__main__":
    world.main()
