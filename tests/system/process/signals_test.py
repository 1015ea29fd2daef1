#!/usr/bin/env python3
"""Signals: storms of them, handlers, masks and waits work around CUDA calls as without us. A stop
and a continuation go unnoticed, and a lost connection never kills by SIGPIPE."""
import os
import signal
import subprocess
import sys

sys.path.insert(0, os.path.dirname(__file__))
import both  # noqa: E402
import world  # noqa: E402
from both import PROGRAM  # noqa: E402

DEVICE_UNAVAILABLE = "46"


class Signals(both.Case):
    def test_calls_survive_signal_storm(self):
        self.both(PROGRAM, "signal_storm", "40" if world.ARGS.sanitizer else "200", said="PASSED")

    def test_program_keeps_signal_masks_and_waits(self):
        self.both(PROGRAM, "signals_waited_for", said="PASSED")

    def test_program_keeps_signal_handlers_and_stack(self):
        self.both(PROGRAM, "own_handlers", said="PASSED", env=both.unreported_signals())

    def steady(self):
        # In its own process group, because a group orphaned at its session's end ignores SIGTSTP.
        run = subprocess.Popen([world.GPURUN, "-q", *self.server.options(), "--", PROGRAM, "steady"],
                               env=world.environment(), stdin=subprocess.PIPE, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               process_group=0)
        self.assertEqual(run.stdout.readline(), "ready\n")
        return run

    def test_program_continues_after_stop(self):
        for stop in (signal.SIGSTOP, signal.SIGTSTP):
            run = self.steady()
            (program,) = world.children(run.pid)
            os.kill(program, stop)
            world.until(lambda: world.stat_fields(program)[0] == "T", "it stops")  # noqa: B023
            os.kill(program, signal.SIGCONT)
            self.assertEqual(run.communicate(timeout=both.SECONDS), ("PASSED\n", ""))
            self.assertEqual(run.returncode, 0)

    def test_signal_ends_program_during_calls(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL):
            run = self.steady()
            (program,) = world.children(run.pid)
            os.kill(program, number)
            self.assertEqual(run.communicate(timeout=both.SECONDS), ("", ""))
            self.assertEqual(run.returncode, -number)
        self.nothing_left()

    def test_lost_worker_returns_error_without_signal(self):
        run = self.steady()
        for worker in self.server.workers():
            os.kill(worker, signal.SIGKILL)
        said = run.stdout.readline()  # Its input stays open until then, so that it continues to call.
        _, errors = run.communicate(timeout=both.SECONDS)
        self.assertRegex(said, f"FAILED: .*: {DEVICE_UNAVAILABLE}\n")
        self.assertEqual(run.returncode, 1, errors)


if __name__ == "__main__":
    both.main()
