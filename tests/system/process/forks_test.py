#!/usr/bin/env python3
"""Processes that a program makes. A child of a process that uses CUDA gets an error, and a child of
one that does not yet starts afresh. A newly executed program starts afresh. A child that outlives
its parent keeps nothing of the parent's alive."""
import os
import re
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(__file__))
import both  # noqa: E402
import world  # noqa: E402
from both import PROGRAM  # noqa: E402

NO_THREADS_AFTER_FORK = "ThreadSanitizer allows no threads in a child of a process with threads"
# With ctypes, as Python's CUDA packages do: in the parent and in two workers.
MULTIPROCESSING = """
import ctypes, multiprocessing, sys
def work(value):
    cuda = ctypes.CDLL("libcuda.so.1")
    def must(code):
        if code: raise SystemExit(f"FAILED {code}")
    context, memory, got = ctypes.c_void_p(), ctypes.c_uint64(), (ctypes.c_ubyte * 4096)()
    must(cuda.cuInit(0))
    must(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
    must(cuda.cuCtxSetCurrent(context))
    must(cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(4096)))
    must(cuda.cuMemsetD8_v2(memory, ctypes.c_ubyte(value), ctypes.c_size_t(4096)))
    must(cuda.cuMemcpyDtoH_v2(got, memory, ctypes.c_size_t(4096)))
    return sum(got)
if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    if sys.argv[2] == "parent-first": print("parent", work(1))
    if sys.argv[2] == "parent-asks":  # As PyTorch's loaders and vLLM do, before they make workers.
        version, nvml = ctypes.c_int(), ctypes.CDLL("libnvidia-ml.so.1")
        print(ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version)), nvml.nvmlInit_v2())
    with context.Pool(2) as pool: print("children", pool.map(work, [2, 3], chunksize=1))
    if sys.argv[2] != "parent-first": print("parent", work(1))
"""
# No GPU is visible to the parent, and one to its child.
FAILED_START = """
import ctypes, os
cuda = ctypes.CDLL("libcuda.so.1")
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
parent = cuda.cuInit(0)
child = os.fork()
if child == 0:
    os.environ["CUDA_VISIBLE_DEVICES"] = "0"
    os._exit(cuda.cuInit(0))
print("parent %d, child %d" % (parent, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])))
"""


class Forks(both.Case):
    def test_child_uses_cuda_only_when_forked_before_init(self):
        self.both(PROGRAM, "fork_before_init", said="child: exit 0\n(.|\n)*PASSED")
        for case in ("fork_after_init", "fork_after_context"):
            self.both(PROGRAM, case, said="the child hears 3 3 3 3 3 3\nchild: exit 0\n(.|\n)*PASSED",
                      env=both.unchecked_leaks())
        self.both(PROGRAM, "fork_grandchild", said="PASSED")
        self.nothing_left()

    def test_child_computes_when_parent_only_queries(self):
        if world.ARGS.sanitizer == "thread":
            self.skipTest(NO_THREADS_AFTER_FORK)
        for what in ("version", "function", "nvml"):
            said = ("child: exit 0\ngrandchild: exit 0\nthe child hears 3 3 3 3 3 3\n(.|\n)*"
                    "child that asks, too: exit 0\nmade by clone\\(\\): exit 0\n"
                    "the child hears 3 3 3 3 3 3\nthe child hears 3 3 3 3 3 3\n(.|\n)*PASSED")
            with self.subTest(what=what):
                self.both(PROGRAM, "fork_after_questions", what, said=said, env=both.unchecked_leaks())
        self.nothing_left()

    def test_fork_succeeds_while_threads_query(self):
        if world.ARGS.sanitizer:
            self.skipTest("a sanitizer's allocator may be locked in a child of many threads")
        for words in ((), ("compute",)):
            self.both(PROGRAM, "fork_while_asked", *words, said="PASSED")
        self.both(PROGRAM, "fork_at_first_question", said="PASSED")
        self.nothing_left()

    def test_fork_succeeds_while_threads_compute(self):
        if world.ARGS.sanitizer:
            self.skipTest("a sanitizer's allocator may be locked in a child of many threads")
        rounds = "40"
        self.both(PROGRAM, "fork_from_a_thread", rounds, said="PASSED", env=both.unchecked_leaks())

    def test_child_exit_leaves_parent_working(self):
        self.both(PROGRAM, "fork_child_ends", said="exit 4\nexit 4\nsignal 6\nsignal 9\nexit 4\nPASSED",
                  env=both.unchecked_leaks())

    def test_child_without_fork_handlers_gets_error(self):
        if world.ARGS.sanitizer == "thread":
            self.skipTest("ThreadSanitizer knows no such children")
        done = self.forwarded(PROGRAM, "fork_without_handlers")
        self.judge(done, done, said="the child hears 3 3 3 3 3 3\nchild: exit 0\nPASSED")

    def test_exec_starts_cuda_afresh(self):
        words = ["without-shells"] if world.ARGS.sanitizer else []
        self.both(PROGRAM, "fork_and_exec", *words, said="vfork and exec: exit 0\n(.|\n)*PASSED")
        for _ in range(3):
            self.both(PROGRAM, "exec_from_a_thread", said="PASSED")
        self.nothing_left()

    def test_python_multiprocessing_workers_compute(self):
        if world.ARGS.sanitizer:
            self.skipTest(both.NOT_INSTRUMENTED)
        with both.script(MULTIPROCESSING) as path:
            for words in (("fork", "child-first"), ("spawn", "child-first"), ("spawn", "parent-first"),
                          ("forkserver", "parent-first"), ("fork", "parent-asks"),
                          ("forkserver", "parent-asks"), ("spawn", "parent-asks")):
                self.both(sys.executable, path, *words, said=r"children \[8192, 12288\]")

    def test_child_initialises_cuda_after_parent_fails_to(self):
        """Only a successful cuInit keeps CUDA from a child."""
        if world.ARGS.sanitizer:
            self.skipTest(both.NOT_INSTRUMENTED)
        with both.script(FAILED_START) as path:
            done = self.forwarded(sys.executable, path)
            self.judge(done, done, said="parent 100, child 0")

    def test_daemonised_child_computes_unless_parent_used_cuda(self):
        self.both(PROGRAM, "daemon_of_its_own", said="the daemon has computed\nPASSED")
        self.both(PROGRAM, "daemon_of_its_own", "parent-too", said="the child hears 3 3 3 3 3 3\n")
        if world.ARGS.sanitizer != "thread":
            self.both(PROGRAM, "daemon_of_its_own", "parent-asks", said="the daemon has computed\nPASSED")


class Orphans(both.Case):
    """Children that outlive a killed parent."""

    def start(self, *words):
        run = subprocess.Popen([world.GPURUN, "-q", *self.server.options(), "--", PROGRAM, *words],
                               env=world.environment(), stdin=subprocess.DEVNULL, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(run.stdout.close)
        self.addCleanup(run.stderr.close)
        self.addCleanup(run.wait)
        self.addCleanup(run.kill)  # Which also kills the rest of the program.
        return run

    def test_parent_death_ends_session_and_keeps_lease(self):
        run = self.start("orphan")
        child, parent = map(int, re.search(r"child (\d+) of (\d+)", run.stdout.readline()).groups())
        self.assertEqual(len(self.server.workers()), 1)
        os.kill(parent, signal.SIGKILL)
        world.until(lambda: not self.server.workers(), "the worker ends, though the child lives")
        self.assertTrue(world.alive(child))
        # The child still belongs to the run, and may start a process that uses the GPU.
        self.assertEqual(world.holdings(self.server)["leases"], 1)
        os.kill(child, signal.SIGKILL)
        run.communicate(timeout=world.SECONDS)
        self.assertEqual(run.returncode, -signal.SIGKILL)
        self.nothing_left()

    def test_child_without_fork_handlers_releases_parent_session(self):
        if world.ARGS.sanitizer == "thread":
            self.skipTest("ThreadSanitizer knows no such children")
        run = self.start("orphan", "raw")
        self.assertEqual(run.stdout.readline(), "the child hears 3 3 3 3 3 3\n")
        child, parent = map(int, re.search(r"child (\d+) of (\d+)", run.stdout.readline()).groups())
        os.kill(parent, signal.SIGKILL)
        # Long before the server's silence deadline (30 s).
        self.assertTrue(world.wait(lambda: not self.server.workers(), 15), "the worker lives on")
        os.kill(child, signal.SIGKILL)
        run.communicate(timeout=world.SECONDS)
        self.nothing_left()

    def test_daemonised_child_keeps_its_own_session(self):
        run = self.start("daemon_of_its_own", "parent-idle", "stays")
        lines = [run.stdout.readline() for _ in range(3)]
        daemon = next(int(line.split()[1]) for line in lines if line.startswith("daemon "))
        # A process that ends at that moment has no fields.
        (main,) = [pid for pid in world.running(PROGRAM) if pid != daemon and
                   (world.stat_fields(pid) or (None, None))[1] == str(run.pid)] or [None]
        world.until(lambda: main is None or not world.alive(main), "the program itself ends")
        self.assertEqual(len(self.server.workers()), 1)
        self.assertIsNone(run.poll())
        os.kill(daemon, signal.SIGTERM)
        run.communicate(timeout=world.SECONDS)
        self.assertEqual(run.returncode, 0)
        self.nothing_left()


if __name__ == "__main__":
    both.main()
