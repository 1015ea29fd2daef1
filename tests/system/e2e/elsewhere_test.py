#!/usr/bin/env python3
"""Elsewhere: the GPU is on another machine. The client runs in mount and network namespaces without
the emulated device, the other devices of this build, LLVM, gpurund and the worker. It reaches the
server only over a virtual Ethernet link.

The server also runs in two namespaces, so that nothing of the test remains in the machine's own.
Root is not needed where the kernel lets everyone create namespaces.

The words after -- are the program to run, which must print PASSED. Without them the test makes a
few CUDA calls.
"""
import glob
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../support"))
WORDS = sys.argv[1:]
import world  # noqa: E402
from world import environment, until  # noqa: E402

PROGRAM = sys.argv[sys.argv.index("--") + 1:] if "--" in sys.argv else []
sys.argv = sys.argv[:1]
TOOLS = ("ip", "unshare", "nsenter", "mount")
INSIDE = "GPURUN_ELSEWHERE_TEST"  # Set in the process that has its own namespaces.
NEAR, FAR = "198.18.0.1", "198.18.0.2"  # 198.18.0.0/15 is for tests between devices (RFC 2544).


def hidden():
    """Files and folders that the client's side must not need, as they are now."""
    build = world.ARGS.build
    paths = [os.path.join(build, "bin/gpurund"), os.path.join(build, "bin/gpurun-worker"),
             os.path.join(build, "lib/gpurun/emulated"), os.path.join(build, "tests/drivers"),
             world.ARGS.driver, *glob.glob("/usr/lib/*/libLLVM*.so*"),
             # Not lib/clang, because a build with a sanitizer has its runtime there.
             *glob.glob("/usr/lib/llvm-*/bin"), *glob.glob("/usr/lib/llvm-*/lib/*.so*")]
    return sorted({os.path.realpath(path) for path in paths if os.path.exists(path)}, reverse=True)


def run(*words):
    subprocess.run(words, check=True, timeout=world.SECONDS)


class Elsewhere(unittest.TestCase):
    def setUp(self):
        missing = [tool for tool in TOOLS if shutil.which(tool) is None]
        if missing or INSIDE not in os.environ:
            self.skipTest(f"needs namespaces, and of iproute2 and util-linux: {missing}")
        self.config = tempfile.TemporaryDirectory()
        self.addCleanup(self.config.cleanup)
        self.holder = subprocess.Popen(["unshare", "--mount", "--net", "sleep", "infinity"])
        self.addCleanup(self.end_holder)
        mine = os.readlink("/proc/self/ns/net")
        until(lambda: os.readlink(f"/proc/{self.holder.pid}/ns/net") != mine
              and world.name_of(self.holder.pid) == "sleep", "the namespaces")
        made = subprocess.run(["ip", "link", "add", "near", "type", "veth", "peer", "name", "far"],
                              capture_output=True, text=True, timeout=world.SECONDS)
        if made.returncode != 0:
            self.skipTest(f"no virtual Ethernet link: {made.stderr}")
        run("ip", "link", "set", "far", "netns", str(self.holder.pid))
        run("ip", "address", "add", f"{NEAR}/30", "dev", "near")
        run("ip", "link", "set", "near", "up")
        self.inside("ip", "address", "add", f"{FAR}/30", "dev", "far")
        self.inside("ip", "link", "set", "far", "up")
        self.inside("ip", "link", "set", "lo", "up")
        for path in hidden():
            if os.path.isdir(path):
                self.inside("mount", "-t", "tmpfs", "none", path)
                self.inside("sh", "-c", f"test -z \"$(ls -A '{path}')\"")
            else:
                self.inside("mount", "--bind", "/dev/null", path)
                self.inside("test", "!", "-f", path)

    def end_holder(self):
        self.holder.kill()
        self.holder.wait()

    def inside(self, *words):
        run("nsenter", "-t", str(self.holder.pid), "-m", "-n", *words)

    def client(self, *words, **changes):
        return subprocess.run(["nsenter", "-t", str(self.holder.pid), "-m", "-n", world.GPURUN, *words],
                              env=environment(GPURUN_DRIVER=None, XDG_CONFIG_HOME=self.config.name, **changes),
                              capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=8 * world.SECONDS)

    def test_program_runs_without_server_files(self):
        alone = self.client("--", "true")
        self.assertEqual(alone.returncode, 125)
        self.assertIn("gpurund is missing", alone.stderr)
        with world.Gpurund("--listen", f"{NEAR}:0", "--insecure-plaintext") as server:
            program = PROGRAM or [world.ARGS.client, "where"]
            done = self.client(*server.options(), "--", *program)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr + server.log())
            self.assertIn("PASSED" if PROGRAM else "libcuda", done.stdout)
            self.assertIn("met the server", done.stderr)
            where = [world.ARGS.client, "where"]
            plain = self.client(*server.options(), "--insecure-plaintext", "--", *where)
            self.assertEqual((plain.returncode, plain.stderr), (0, ""))
        with world.Gpurund("--listen", f"{NEAR}:0") as server:
            encrypted = self.client(*server.options(), "--", *where)
            self.assertEqual(encrypted.returncode, 0, encrypted.stderr)
            alone = self.client(*server.options(), "--insecure-plaintext", "--", *where)
            self.assertEqual(alone.returncode, 125)
            self.assertIn("both sides need", alone.stderr)
        print(done.stdout)


def enter_namespaces():
    """Executes this script again in namespaces, where the machine provides them."""
    words = ["-mn"] if os.getuid() == 0 else ["-rmn"]
    if shutil.which("unshare") is None or subprocess.run(["unshare", *words, "true"]).returncode != 0:
        return
    os.environ[INSIDE] = "1"
    os.execvp("unshare", ["unshare", *words, "--", sys.executable, __file__, *WORDS])


if __name__ == "__main__":
    if INSIDE not in os.environ:
        enter_namespaces()
    world.main()
