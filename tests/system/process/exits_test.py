#!/usr/bin/env python3
"""End of a program, in any way, from any thread, while others call CUDA. It ends at once, with its
own status and without a message of ours, and leaves nothing."""
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(__file__))
import both  # noqa: E402
import world  # noqa: E402
from both import PROGRAM  # noqa: E402

# Handlers may call exit() only in builds without a sanitizer.
SIGNAL = {} if world.ARGS.sanitizer == "thread" else {"signal": 7}
ROUNDS = 1 if world.ARGS.sanitizer else 3  # The race is not hit each time.
STATUS = 7
SIGNALS = {"abort": 6, "terminate": 6, "throw": 6, "killed": 9, "crash": 11}
WAYS = {"return": 0, "exit": STATUS, "_exit": STATUS, "quick_exit": STATUS, "thread": STATUS,
        "two": STATUS, "atexit": STATUS, "destructor": STATUS, "pthread_exit": STATUS, **SIGNAL}


class Exits(both.Case):
    def compare(self, *words, status):
        env = both.unreported_signals() if status < 0 else {}
        native = self.native_leave(*words, env=env)
        done = self.forwarded(PROGRAM, "leave", *words, env=env)
        what = f"{words}: {native.stdout}{native.stderr} / {done.stdout}{done.stderr}"
        self.assertEqual(native.returncode, status, what)
        self.assertEqual((done.returncode, done.stdout), (status, native.stdout), what)
        self.assertEqual(done.stderr, native.stderr, what)  # std::terminate prints the reason.

    def native_leave(self, *words, env):
        """A handler that interrupts malloc() in the emulated device hangs in exit(), as the C library
        allows. Another try meets another moment. gpurun's own calls must not hang."""
        for _ in range(2 if words[0] == "signal" else 0):
            try:
                return self.native(PROGRAM, "leave", *words, env=env, timeout=both.SECONDS / 6)
            except subprocess.TimeoutExpired:
                print(f"{words} hangs natively", flush=True)
        return self.native(PROGRAM, "leave", *words, env=env)

    def test_exit_keeps_status_while_threads_call(self):
        for _ in range(ROUNDS):
            for way, status in WAYS.items():
                self.compare(way, status=status)
        self.nothing_left()

    def test_fatal_signal_keeps_status_while_threads_call(self):
        for way, number in SIGNALS.items():
            self.compare(way, status=-number)
        self.nothing_left()

    def test_exit_keeps_status_without_other_threads(self):
        for way, status in WAYS.items():
            self.compare(way, "alone", status=status)
        self.nothing_left()

    def test_shared_memory_ends_with_its_context(self):
        self.both(PROGRAM, "shared_memory_of_ended_contexts", said="PASSED")
        self.nothing_left()


if __name__ == "__main__":
    both.main()
