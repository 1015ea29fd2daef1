#!/usr/bin/env python3
"""Descriptors: a program that closes all of them gets one defined error and one message. gpurun
does not write to, read from, shut down or close their numbers when the program uses them again."""
import os
import resource
import sys
import tempfile

sys.path.insert(0, os.path.dirname(__file__))
import both  # noqa: E402
import world  # noqa: E402
from both import PROGRAM  # noqa: E402

LOST = "cuCtxSynchronize 46, cuMemAlloc 46, cuInit 0\n"
MESSAGE = r"^gpurun: error: .*the program has closed gpurun's descriptor \d+.*; the last call was "


class Descriptors(both.Case):
    def lost(self, *words, limit=None):
        """The program learns of the loss by the documented code and by one line."""
        before = None
        if limit is not None:  # For the client alone: its descriptors then have low numbers.
            def before():
                resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
        with tempfile.TemporaryDirectory() as folder:
            done = self.forwarded(PROGRAM, *words, cwd=folder, preexec_fn=before)
        self.judge(done, done, said="(?s)^.*" + LOST + "(.|\n)*" + LOST + "(.|\n)*PASSED\n",
                   messages=[MESSAGE])
        self.nothing_left()
        return done

    def test_closing_descriptors_returns_device_unavailable(self):
        self.lost("descriptors_closed")

    def test_reused_descriptors_are_left_alone(self):
        for limit in (None, 64):
            for what in ("sockets", "files"):
                done = self.lost("descriptors_reused", what, limit=limit)
                self.assertIn("descriptors there were\n", done.stdout)

    def test_closing_descriptors_before_first_call_is_harmless(self):
        self.both(PROGRAM, "descriptors_closed_before", said="PASSED")
        self.nothing_left()


if __name__ == "__main__":
    both.main()
