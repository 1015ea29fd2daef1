#!/usr/bin/env python3
"""Programs under limits. With little address space, few descriptors, small stacks or refused system
calls they compute, or get an error with its reason. Short-lived threads leave nothing."""
import os
import resource
import subprocess
import sys

sys.path.insert(0, os.path.dirname(__file__))
import both  # noqa: E402
import world  # noqa: E402
from both import PROGRAM  # noqa: E402

MIB = 1 << 20
NO_DEVICE = "^gpurun: error: no CUDA device can be used: "
THREADS = 200 if world.ARGS.sanitizer else 2_500  # In each round.
ROUNDS = 16  # At most.
LARGE_STORAGE = os.path.join(both.FOLDER, "process_large_storage")


class Limits(both.Case):
    def test_small_address_space_computes_or_returns_error(self):
        if world.ARGS.sanitizer:
            self.skipTest("sanitizers take address space by the terabyte")
        for mebibytes in (65_536, 4_096, 1_024, 512):
            self.both(PROGRAM, "limited", "as", str(mebibytes * MIB), said="computed")
        for mebibytes in (40, 20):
            done = self.forwarded(PROGRAM, "limited", "as", str(mebibytes * MIB))
            self.judge(done, done, said="result 46", messages=[NO_DEVICE + "no memory for "])

    def test_few_descriptors_compute_or_return_error(self):
        # A leak check opens some itself.
        for most in ("64",) if world.ARGS.sanitizer else ("64", "16", "7"):
            self.both(PROGRAM, "limited", "nofile", most, said="computed")
        if world.ARGS.sanitizer:
            return
        done = self.forwarded(PROGRAM, "limited", "nofile", "3")
        self.judge(done, done, said="result 46", messages=[NO_DEVICE + ".*Too many open files"])

    def test_program_computes_with_small_stack_and_no_locked_memory(self):
        if world.ARGS.sanitizer:
            self.skipTest("a sanitizer takes more of a stack than there is")
        self.both(PROGRAM, "limited", "stack", "65536", "memlock", "0", "core", "0", said="computed")

    def test_thread_limit_returns_error_with_reason(self):
        if os.geteuid() != 0 or not world.can_be(2_000_005_000):
            self.skipTest("needs a user of its own: root has no limit")
        if world.ARGS.sanitizer:
            self.skipTest("the search for leaks starts a thread")
        # A private server, because that user could not read the secret of another.
        done = subprocess.run(
            ["setpriv", "--reuid=2000005000", "--clear-groups", "--", world.GPURUN, "-q", "--device",
             "emulated", "--", PROGRAM, "limited", "nproc", "1"], env=world.environment(GPURUN_DRIVER=None),
            capture_output=True, text=True, timeout=both.SECONDS, stdin=subprocess.DEVNULL)
        self.judge(done, done, said="result 46", messages=[NO_DEVICE + "cannot start the thread"])

    def test_shell_limits_do_not_stop_private_server(self):
        if world.ARGS.sanitizer:
            self.skipTest("a sanitizer takes more of all than there is")
        users = [()]
        if os.geteuid() == 0 and world.can_be(2_000_005_000):
            users.append(("setpriv", "--reuid=2000005000", "--clear-groups", "--"))
        for before in users:
            for which, soft, hard in (
                    (resource.RLIMIT_STACK, 128 << 10, 128 << 10), (resource.RLIMIT_STACK, 64 << 10, 8 * MIB),
                    (resource.RLIMIT_AS, 2048 * MIB, None), (resource.RLIMIT_MEMLOCK, 0, 0),
                    (resource.RLIMIT_FSIZE, 0, None), (resource.RLIMIT_CORE, 0, 0),
                    (resource.RLIMIT_FSIZE, 128 << 10, 128 << 10), (resource.RLIMIT_CPU, 3000, 3000),
                    (resource.RLIMIT_NOFILE, 64, None), (resource.RLIMIT_NPROC, 40, None),
                    (resource.RLIMIT_DATA, 512 * MIB, None)):
                with self.subTest(before=before, which=which, soft=soft):
                    most = resource.getrlimit(which)[1] if hard is None else hard
                    done = subprocess.run(
                        [*before, world.GPURUN, "-q", "--device", "emulated", "--", PROGRAM, "limited"],
                        env=world.environment(GPURUN_DRIVER=None), capture_output=True, text=True,
                        timeout=both.SECONDS, stdin=subprocess.DEVNULL,
                        preexec_fn=lambda: resource.setrlimit(which, (soft, most)))  # noqa: B023
                    self.judge(done, done, said="computed")
        done = subprocess.run([world.GPURUN, "--device", "emulated", "--", PROGRAM, "limited"],
                              env=world.environment(GPURUN_DRIVER=None), capture_output=True, text=True,
                              timeout=both.SECONDS, stdin=subprocess.DEVNULL,
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)))
        self.assertEqual((done.returncode, done.stdout), (125, ""), done.stderr)
        self.assertRegex(done.stderr, r"^gpurun: the hard limit of file sizes \(ulimit -f\) is 0 bytes")

    def test_program_keeps_file_size_limit_of_user(self):
        done = subprocess.run(
            [world.GPURUN, "-q", *self.server.options(), "--", "sh", "-c", "ulimit -f; grep SigIgn /proc/$$/status"],
            env=world.environment(), capture_output=True, text=True, timeout=both.SECONDS,
            stdin=subprocess.DEVNULL,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE,
                                                  (MIB, resource.getrlimit(resource.RLIMIT_FSIZE)[1])))
        blocks, ignored = done.stdout.split("\n", 1)
        self.assertEqual(int(blocks) * 512, MIB, done.stderr)
        self.assertEqual(int(ignored.split()[1], 16) >> (25 - 1) & 1, 0)  # SIGXFSZ.

    def test_program_survives_refused_system_calls(self):
        for refusal in ("ENOSYS", "EPERM"):
            self.both(PROGRAM, "system_calls_refused", refusal, said="PASSED")

    def test_threads_with_small_stacks_compute(self):
        if world.ARGS.sanitizer:
            self.skipTest("a sanitizer takes more of a stack than there is")
        self.both(PROGRAM, "small_stacks", said="PASSED")

    def test_library_loads_with_large_thread_local_storage(self):
        self.both(LARGE_STORAGE, "libcuda.so.1", "2", said="result 0\nresult 0\nPASSED")


class Threads(both.Case):
    def test_short_lived_threads_leave_no_resources(self):
        self.come_and_go(at_once=4)

    def test_concurrent_threads_leave_no_resources(self):
        self.come_and_go(at_once=20 if world.ARGS.sanitizer else 500)

    def come_and_go(self, at_once):
        run = subprocess.Popen([world.GPURUN, "-q", *self.server.options(), "--", PROGRAM,
                                "many_threads", str(THREADS), str(at_once)], env=world.environment(), text=True,
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

        def holds(then):
            seen = {"program's own": int(run.stdout.readline())}
            for pid in (*self.server.workers(), *world.children(run.pid)):
                status = world.status_of(pid)
                seen[status["Name"]] = (int(status["Threads"]), world.descriptors(pid))
                seen[status["Name"], "KiB"] = int(status["VmRSS"].split()[0])
            run.stdin.write(then + "\n")
            run.stdin.flush()
            return seen

        def grown(name):  # Per round, in the last three.
            return (held[-1][name, "KiB"] - held[-4][name, "KiB"]) / 3

        names = ("gpurun-worker", os.path.basename(PROGRAM))
        # A leak of 512 bytes for each thread would grow more for ever. The number of streams that
        # are busy at once is random, and a new maximum takes memory once.
        most = THREADS // 2
        held = [holds("on") for _ in range(4)]
        while len(held) < ROUNDS - 1 and not world.ARGS.sanitizer and any(grown(name) >= most for name in names):
            held.append(holds("on"))
        held.append(holds("end"))
        self.assertEqual(run.communicate(timeout=both.SECONDS), ("PASSED\n", ""))
        # A joined thread may still be counted for a moment.
        self.assertLessEqual(held[-1]["program's own"] - held[0]["program's own"], at_once)
        for name in names:
            for before, after in zip(held[0][name], held[-1][name]):
                # The worker has a thread for each busy stream, and ends those that are idle.
                self.assertLessEqual(after - before, at_once + 4, (name, held))
            if world.ARGS.sanitizer:
                continue  # Its allocator keeps freed memory.
            self.assertLess(grown(name), most, (name, held))
        for seen in held:
            self.assertEqual(len(seen), 5)


if __name__ == "__main__":
    both.main()
