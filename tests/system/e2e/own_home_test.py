#!/usr/bin/env python3
"""Home folder of tests: kernels, images and objects that tests store go into the build folder.
Neither the tests nor the user of the machine sees the other's files."""
import os
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../support"))
import world  # noqa: E402

RUN_BOTH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../programs/run_both.py")
KERNELS = os.path.join(world.HOME, ".cache/gpurun-kernels")


class TestHome(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.users = holder.name
        before = dict(os.environ)
        self.addCleanup(os.environ.update, before)
        os.environ.update(HOME=self.users, XDG_CACHE_HOME=os.path.join(self.users, "cache"))

    def kept(self):
        return set(os.listdir(KERNELS)) if os.path.isdir(KERNELS) else set()

    def image_bytes(self):
        """A new image in each run of this test, which no cache can contain."""
        return str(1000 + int.from_bytes(os.urandom(2), "little"))

    def test_run_both_stores_kernels_in_test_home(self):
        before = self.kept()
        self.addCleanup(os.remove, os.path.join(world.ARGS.build, "exercised/own_home.json"))
        done = subprocess.run(
            [sys.executable, RUN_BOTH, "--build", world.ARGS.build, "--null-device", "--record",
             "own_home", "--", world.ARGS.client, "load", self.image_bytes()],
            capture_output=True, text=True, timeout=world.SECONDS, stdin=subprocess.DEVNULL)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(os.listdir(self.users), [])
        self.assertNotEqual(self.kept(), before, done.stdout + done.stderr)

    def test_gpurun_of_tests_leaves_user_home_empty(self):
        done = world.gpurun("--", world.ARGS.client, "load", "9",
                            env=world.environment(GPURUN_CACHE=None))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(os.listdir(self.users), [])


if __name__ == "__main__":
    world.main()
