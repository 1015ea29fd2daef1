"""Leases of several GPUs: the program sees as many, each works, and memory is copied between them.
A lease of one shows one. No lease exceeds the GPUs that the server has or that are free."""
import os
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../support"))
import world  # noqa: E402
from world import environment, gpurun  # noqa: E402

PROGRAM = sys.argv.pop(1)
TWO = {"GPURUN_EMULATED": "devices=2"}


def with_cache_of_its_own(server):
    return environment(XDG_CACHE_HOME=os.path.join(server.folder.name, "client"))


class SeveralGpus(unittest.TestCase):
    def lease(self, server, count, *words):
        return gpurun("-q", "-n", str(count), *words, *server.options(), "--", PROGRAM, str(count),
                      env=with_cache_of_its_own(server))

    def test_program_sees_and_uses_leased_number_of_gpus(self):
        with world.Gpurund(env=environment(**TWO)) as server:
            both = self.lease(server, 2, "--timeout", "20s")
            self.assertEqual(both.returncode, 0, both.stdout + both.stderr)
            self.assertEqual(both.stdout.splitlines()[0], "devices: 2")
            for line in ("device 0: computed, its memory is of device 0",
                         "device 1: computed, its memory is of device 1",
                         "from 0 to 1: right", "from 1 to 0: right", "PASSED"):
                self.assertIn(line, both.stdout.splitlines())
            one = self.lease(server, 1, "--timeout", "20s")
            self.assertEqual(one.returncode, 0, one.stdout + one.stderr)
            self.assertEqual(one.stdout.splitlines()[0], "devices: 1")

    def test_lease_beyond_server_gpus_is_refused(self):
        with world.Gpurund(env=environment(**TWO)) as server:
            done = self.lease(server, 3, "--timeout", "1h")
            self.assertEqual(done.returncode, 125)
            self.assertIn("3 GPUs wanted; this server has 2", done.stderr)
            self.assertEqual(done.stdout, "")

    def test_two_runs_share_server_and_third_is_refused(self):
        with world.Gpurund(env=environment(**TWO)) as server:
            holders = []
            try:
                for _ in range(2):
                    holders.append(subprocess.Popen(
                        [world.GPURUN, "-q", *server.options(), "--", "sh", "-c",
                         'echo ready; read word; exec "$0" 1', PROGRAM], text=True,
                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                        env=with_cache_of_its_own(server)))
                    self.assertEqual(holders[-1].stdout.readline(), "ready\n")
                third = self.lease(server, 1)
                self.assertEqual((third.returncode, third.stdout), (125, ""), third.stderr)
                self.assertRegex(third.stderr, "GPU.*--timeout")
                for holder in holders:
                    holder.stdin.write("go\n")
                    holder.stdin.flush()
                for holder in holders:
                    output, errors = holder.communicate(timeout=world.SECONDS)
                    self.assertEqual(holder.returncode, 0, output + errors)
                    self.assertTrue(output.startswith("devices: 1\n"), output)
                    self.assertTrue(output.endswith("PASSED\n"), output)
            finally:
                for holder in holders:
                    if holder.poll() is None:
                        holder.kill()
                        holder.communicate(timeout=world.SECONDS)


world.main()
