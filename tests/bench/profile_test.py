#!/usr/bin/env python3
"""Profiler of the bench's rows: a row repeats for as long as it is watched, threads are told apart
by their names, and messages name what is missing."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "../support")]
from machine import CLIENT, Machine, forwarded_environment  # noqa: E402
import repeated  # noqa: E402
import report  # noqa: E402
import sessions  # noqa: E402
import world  # noqa: E402

PROFILE = [sys.executable, "-B", os.path.join(HERE, "profile"), "--build", world.ARGS.build]


def natively(*words):
    return subprocess.run([CLIENT, *words], env=Machine(1, True).native_environment(), capture_output=True,
                          text=True, timeout=world.SECONDS, stdin=subprocess.DEVNULL)


def told(*words, path=None):
    environment = dict(os.environ) if path is None else {**os.environ, "PATH": path}
    return subprocess.run([*PROFILE, *words], env=environment, capture_output=True, text=True,
                          timeout=world.SECONDS, stdin=subprocess.DEVNULL)


class Repeated(unittest.TestCase):
    def test_row_option_repeats_one_row(self):
        for group, row in (("fences", "copy out 4 B"), ("copies", "copy out 64 KiB, pageable, one by one"),
                           ("posted", "event record")):
            done = natively("--row", row, "0.05", group)
            ready, over, results = done.stdout.split("\n", 2)
            self.assertEqual((done.returncode, ready, over), (0, "ready", "over"), done.stderr)
            results = json.loads(results)
            self.assertEqual(list(results), [row])
            self.assertGreater(results[row]["samples"], 0)

    def test_unknown_row_is_refused(self):
        done = natively("--row", "copy out 5 B", "0.05", "fences")
        self.assertEqual(done.returncode, 2)
        self.assertIn("no row 'copy out 5 B' of fences can be repeated", done.stderr)

    def test_invalid_time_is_refused(self):
        for seconds in ("0", "-1", "soon", "1e9"):
            self.assertEqual(natively("--row", "copy out 4 B", seconds, "fences").returncode, 2, seconds)


class WorkerThreads(unittest.TestCase):
    def test_worker_threads_have_role_names(self):
        machine = Machine(1, True)
        with machine.server() as server:
            with subprocess.Popen(machine.gpurun(server, [CLIENT, "--row", "copy out 4 B", "600", "fences"]),
                                  env=forwarded_environment(server), stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, text=True) as client:
                try:
                    self.assertEqual(client.stdout.readline(), "ready\n")
                    (worker,) = server.workers()
                    names = set()
                    for task in os.listdir(f"/proc/{worker}/task"):
                        with open(f"/proc/{worker}/task/{task}/comm", encoding="utf-8") as file:
                            names.add(file.read().strip())
                    self.assertLessEqual({"gpurun-worker", "gpurun-execute", "gpurun-life", "gpurun-output",
                                          "gpurun-bulk-in", "gpurun-bulk-out"}, names)
                finally:
                    client.terminate()


class NeighbourProcesses(unittest.TestCase):
    def test_neighbours_returns_client_and_worker_of_neighbour(self):
        machine = Machine(1, True)
        with machine.server() as server, repeated.Repeated(
                machine, server, 0.5, "copy out 4 B", ("waits", "beside")) as calling:
            clients, workers = sessions.clients_of(calling.client.pid), server.workers()
            found = {role: pid for pid, role in calling.neighbours(server).items()}
            before = [sessions.thread_s(pid, "gpurun-bulk-in") for pid in workers]
            calling.wait()
            copied = [sessions.thread_s(pid, "gpurun-bulk-in") - early for pid, early in zip(workers, before)]
        self.assertEqual((len(clients), len(workers)), (2, 2))
        self.assertIn(found["the neighbour's client"], clients)
        self.assertEqual(found["the neighbour's worker"], workers[copied.index(max(copied))])
        self.assertGreater(calling.told["samples"], 0)


class ReferenceTimes(unittest.TestCase):
    """The results that a profile compares with."""

    def test_results_give_times_by_placement_and_unit_count(self):
        columns = {"gpurun": {"p50": 9000, "p99": 9000}, "gpurun across": {"p50": 4000, "p99": 6000}}
        rows = [{"row": "a fence", "unit": "ns", "columns": columns, "met": False},
                {"row": "a loop", "unit": "ms", "columns": {"gpurun": report.one(30)}, "met": True}]
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "kept.json")
            with open(path, "w", encoding="utf-8") as file:
                json.dump({"groups": {"fences": {"rows": rows}}}, file)
            results = report.Results(path)
        self.assertEqual(results.unmet(), [("fences", "a fence")])
        self.assertEqual(results.told("fences", "a fence", "across", 1), ["4.00 us (6.0) in kept"])
        self.assertEqual(results.told("fences", "a fence", "free", 1), ["9.00 us in kept"])
        self.assertEqual(results.told("fences", "a loop", "across", 10), ["3.00 ms in kept"])
        self.assertEqual(results.told("copies", "a fence", "free", 1), [])

    @unittest.skipIf(shutil.which("perf") is None, "perf is not installed")
    def test_profile_prints_row_times_with_and_without_profiling(self):
        done = told("--rows", f"fences:copy out 4 B;sessions:{sessions.BESIDE}", "--seconds", "0.5")
        if "perf record" in done.stderr:
            self.skipTest(done.stderr)
        self.assertEqual(done.returncode, 0, done.stderr)
        number = r"[0-9.,]+ us( \([0-9.,]+\))?"
        for row in ("fences: copy out 4 B", f"sessions: {sessions.BESIDE}"):
            self.assertRegex(done.stdout, rf"(?m)^{row} \({number} while it is profiled, {number} just before, "
                                          rf"{number} in bench-2-cores\)$")
        self.assertIn("the neighbour's worker, gpurun-bulk-in: ", done.stdout)


class ProfilerErrors(unittest.TestCase):
    def test_missing_perf_is_reported(self):
        done = told("--rows", "fences:copy out 4 B", path="/nonexistent")
        self.assertEqual(done.returncode, 2)
        self.assertIn("perf is not installed (Debian: linux-perf)", done.stderr)

    def test_row_without_group_is_refused(self):
        done = told("--rows", "copy out 4 B")
        self.assertEqual(done.returncode, 2)
        self.assertIn("copy out 4 B: no GROUP:ROW", done.stderr)

    def test_missing_results_file_is_reported(self):
        done = told("--unmet", "/nonexistent/bench.json")
        self.assertEqual(done.returncode, 2)
        self.assertIn("/nonexistent/bench.json", done.stderr)
        self.assertNotIn("Traceback", done.stderr)

    @unittest.skipIf(shutil.which("perf") is None, "perf is not installed")
    def test_unrepeatable_rows_are_reported_and_skipped(self):
        done = told("--rows", "fences:smallest synchronous call: copy out 4 B;mnist:what there is not", "--seconds", "0.1")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.count("not profiled: it is no call of one thread, start or loop of its own"), 2)

    def test_seconds_out_of_range_are_refused(self):
        self.assertIn("from 0.1 to 60", told("--rows", "a:b", "--seconds", "0").stderr)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]], verbosity=2)
