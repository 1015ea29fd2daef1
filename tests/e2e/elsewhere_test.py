#!/usr/bin/env python3
"""Protects the claim itself: the GPU is elsewhere. The client runs in mount and network namespaces in
which the emulated device, LLVM, gpurund and the worker do not exist, and reaches the server over a
virtual Ethernet link only.

Its last words (after --) are the program to run; without them, a few CUDA calls.
"""
import glob
import os
import shutil
import subprocess
import sys
import unittest

import world
from world import environment, until

PROGRAM = sys.argv[sys.argv.index("--") + 1:] if "--" in sys.argv else [
    world.ARGS.client, "where"]
sys.argv = sys.argv[:1]


def hidden_files():
    """What the client's side must not need."""
    bin_folder = os.path.join(world.ARGS.build, "bin")
    return [os.path.join(bin_folder, "gpurund"), os.path.join(bin_folder, "gpurun-worker"),
            os.path.realpath(world.ARGS.driver),
            *{os.path.realpath(path) for path in glob.glob("/usr/lib/*/libLLVM*.so*")
              + glob.glob("/usr/lib/llvm-*/lib/libLLVM*.so*")}]


def run(*words):
    subprocess.run(words, check=True, timeout=world.SECONDS)


class Elsewhere(unittest.TestCase):
    def setUp(self):
        missing = [tool for tool in ("ip", "unshare", "nsenter") if shutil.which(tool) is None]
        if os.getuid() != 0 or missing:
            self.skipTest(f"needs root, and of iproute2 and util-linux: {missing}")
        self.holder = subprocess.Popen(["unshare", "--mount", "--net", "sleep", "infinity"])
        self.addCleanup(self.end_holder)
        mine = os.readlink("/proc/self/ns/net")
        until(lambda: os.readlink(f"/proc/{self.holder.pid}/ns/net") != mine
              and world.name_of(self.holder.pid) == "sleep", "the namespaces")
        near, far = f"gp{os.getpid() % 100000}a", f"gp{os.getpid() % 100000}b"
        made = subprocess.run(["ip", "link", "add", near, "type", "veth", "peer", "name", far],
                              capture_output=True, text=True, timeout=world.SECONDS)
        if made.returncode != 0:
            self.skipTest(f"no virtual Ethernet link: {made.stderr}")
        self.addCleanup(subprocess.run, ["ip", "link", "del", near], stderr=subprocess.DEVNULL)
        # 198.18.0.0/15 is for tests between devices (RFC 2544).
        self.server_host = f"198.18.{os.getpid() % 256}.1"
        run("ip", "link", "set", far, "netns", str(self.holder.pid))
        run("ip", "address", "add", f"{self.server_host}/30", "dev", near)
        run("ip", "link", "set", near, "up")
        self.inside("ip", "address", "add", f"198.18.{os.getpid() % 256}.2/30", "dev", far)
        self.inside("ip", "link", "set", far, "up")
        self.inside("ip", "link", "set", "lo", "up")
        for path in hidden_files():
            self.inside("mount", "--bind", "/dev/null", path)

    def end_holder(self):
        self.holder.kill()
        self.holder.wait()

    def inside(self, *words):
        run("nsenter", "-t", str(self.holder.pid), "-m", "-n", *words)

    def client(self, *words):
        return subprocess.run(["nsenter", "-t", str(self.holder.pid), "-m", "-n", world.GPURUN, *words],
                              env=environment(GPURUN_DRIVER=None), capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=8 * world.SECONDS)

    def test_a_program_runs_where_nothing_of_the_server_is(self):
        alone = self.client("--", "true")
        self.assertEqual(alone.returncode, 125)
        self.assertIn("gpurund is missing", alone.stderr)
        with world.Gpurund("--listen", f"{self.server_host}:0", "--insecure-plaintext") as server:
            silent = self.client(*server.options(), "--", *PROGRAM)
            self.assertEqual(silent.returncode, 125)
            self.assertIn("--insecure-plaintext", silent.stderr)
            done = self.client(*server.options(), "--insecure-plaintext", "--", *PROGRAM)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertNotEqual(done.stdout, "")
        print(done.stdout)


if __name__ == "__main__":
    world.main()
