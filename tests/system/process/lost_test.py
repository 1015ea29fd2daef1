#!/usr/bin/env python3
"""Programs that have lost their server or worker, or cannot see it. The driver's version is still
returned, so that CUDA's runtime does not call the driver too old, and cuInit returns the matching
error."""
import os
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(__file__))
import both  # noqa: E402
import world  # noqa: E402
from both import PROGRAM  # noqa: E402

UNAVAILABLE = 46  # CUDA_ERROR_DEVICE_UNAVAILABLE


class LostServer(unittest.TestCase):
    def told(self, *words, before=(), lose=lambda server: None, env=None):
        """The program's output after `lose`, and its stderr."""
        with world.Gpurund() as server:
            run = subprocess.Popen([world.GPURUN, "-q", *server.options(), "--", *before, PROGRAM, "lost", *words],
                                   env=world.environment(**(env or {})), text=True, stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            for end in (run.stdout.close, run.stderr.close, run.wait, run.kill):
                self.addCleanup(end)
            self.assertEqual(run.stdout.readline(), "ready\n")
            lose(server)
            out, errors = run.communicate("\n", timeout=both.SECONDS)
            self.assertEqual(run.returncode, 0, out + errors)
        version, rest = out.splitlines()[:2]
        self.assertRegex(version, "^version 0 13[0-9]{3}$", out + errors)
        self.assertEqual(rest, f"function 0, then {UNAVAILABLE}", out + errors)
        return errors

    def test_server_killed_before_first_call_returns_unavailable(self):
        def lose(server):
            server.process.send_signal(signal.SIGKILL)
            server.process.wait()
        self.assertIn("no CUDA device can be used: ", self.told(lose=lose))

    def test_lease_ended_before_first_call_returns_unavailable(self):
        def lose(server):
            server.process.send_signal(signal.SIGTERM)
            server.process.wait()
        self.assertIn("no CUDA device can be used: ", self.told(lose=lose))

    def test_worker_killed_after_attach_returns_unavailable(self):
        def lose(server):
            for worker in server.workers():
                os.kill(worker, signal.SIGKILL)
        self.assertIn("CUDA_ERROR_DEVICE_UNAVAILABLE", self.told("attached", lose=lose))

    def test_pid_namespace_reports_hidden_session(self):
        if os.geteuid() != 0:
            self.skipTest("needs root, for a PID namespace")
        # A leak check looks at its process by a number of the outer namespace.
        said = self.told(before=("unshare", "--fork", "--pid", "--mount-proc"), env=both.unchecked_leaks())
        self.assertIn("out of sight here (chroot, PID namespace, container)", said)


if __name__ == "__main__":
    both.main()
