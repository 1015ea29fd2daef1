#!/usr/bin/env python3
"""A client with a valid ticket that lies where both ends agree on RDMA gets a failure or a session over
TCP, within the worker's deadline. Meanwhile and afterwards the server serves others, also over RDMA. No
process and no descriptor is left."""
import os
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../support"))
import trials  # noqa: E402
import world  # noqa: E402
from world import descriptors, until  # noqa: E402

LIARS, COPIES, VERBS_FOLDER = sys.argv.pop(1), sys.argv.pop(1), sys.argv.pop(1)
WAYS = 13
# A worker waits 10 s for words that do not come.
SILENT_WAYS = 3


class HostileFabric(unittest.TestCase):
    def setUp(self):
        # The verbs double's devices are those of the test's own network namespace.
        self.server = self.enterContext(world.Gpurund("--spare-workers", "0", "--confinement", "none", "--fabric", "rdma0:1"))

    def lie(self, *names):
        """Popen of the liars. They attach over TCP, to which their messages about RDMA belong."""
        return trials.started(self.server, LIARS, names, GPURUN_TRANSPORTS="tcp")

    def assert_honest_client_is_served(self):
        done = world.measured(self.server, [COPIES, "2", "100000"], words=("--trust-fabric",), GPURUN_TRANSPORTS="rdma",
                              LD_LIBRARY_PATH=VERBS_FOLDER)
        self.assertEqual((done.status, done.stdout), (0, "right\n"), done.stderr + self.server.log())
        self.assertRegex(done.statistics[0]["transport"], "^RDMA by rdma0:1")

    def test_lies_about_rdma_harm_only_their_session(self):
        daemon = self.server.process
        self.lie("a_cut_within_the_words").communicate(timeout=world.SECONDS)  # What is made once is there after that.
        until(lambda: not self.server.workers(), "the first liar's worker ends")
        open_before = descriptors(daemon.pid)
        output, errors = self.lie().communicate(timeout=(SILENT_WAYS * 10) + 4 * world.SECONDS)
        ends = trials.ends(output)
        self.assertEqual(trials.wrong(ends), [], errors + self.server.log()[-4000:])
        self.assertEqual(len(ends), WAYS)
        until(lambda: not self.server.workers(), "no worker is left")
        until(lambda: descriptors(daemon.pid) <= open_before, "the daemon's descriptors are closed")
        log = self.server.log()
        self.assertIn("the other end's message about RDMA is not valid", log)
        self.assertNotRegex(log, "ended with (signal|a forbidden|its memory)")
        self.assertIsNone(daemon.poll())
        self.assert_honest_client_is_served()

    # The GPU of a lease is the liar's, so the other client waits for the listing only.
    def test_daemon_serves_others_while_a_client_is_silent(self):
        liar = self.lie("silence")
        try:
            until(self.server.workers, "the liar has a worker")
            listed = subprocess.run([world.GPUCTL, "list", *self.server.options()], capture_output=True, text=True,
                                    env=world.environment(), stdin=subprocess.DEVNULL, timeout=world.SECONDS)
            self.assertEqual(listed.returncode, 0, listed.stderr)
            self.assertIsNone(liar.poll(), "the liar has not been silent")
        finally:
            liar.communicate(timeout=10 + world.SECONDS)
        self.assert_honest_client_is_served()


if __name__ == "__main__":
    world.main()
