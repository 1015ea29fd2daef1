#!/usr/bin/env python3
"""Smoke test of the bench: every row with a bar in docs/performance.md, and every raw baseline that
a bar needs, yields a number. The test does not check the values."""
import itertools
import json
import math
import os
import shlex
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "../support")]
import bars  # noqa: E402
from groups import GROUPS  # noqa: E402
import world  # noqa: E402

NEEDS_MORE = ("mnist", "sequences", "lone", "emulated")  # They need nvcc or the emulated device.
BY_CALL = ("posted", "fences", "objects", "copies")


# Names of the rows with bars, of a quick run. They use numbers where bars.py uses names, so that a
# bar cannot disappear there unnoticed.
def start_names():
    for mode in ("plaintext", "TLS"):
        for kind in ("warm", "cold"):
            yield f"{kind}, {mode}: round trips, one after the other"
            yield f"{kind}, {mode}: whole process, round trips"
            for delay in (0, 30):
                yield f"{kind}, {mode}: time at {delay} ms RTT"
                yield f"{kind}, {mode}: whole process at {delay} ms RTT"
        yield f"gpurun's own link, {mode}: round trips before the program"
        yield f"hand-over to a worker, {mode}"


def steady_names():
    for what in ("copy", "async copy + synchronise"):
        yield f"{what}: round trips for each result"
        yield f"{what}: waits for own events for each result"
        for delay in (0, 1):
            yield f"{what}: 10 results, {delay} ms RTT"


def mnist_names():
    for kind, mode in itertools.product(("warm", "cold"), ("plaintext", "TLS")):
        yield f"start-up, {kind}, {mode}: round trips"
    for what, results in (("reads each step", 36), ("reads each epoch", 3)):
        yield f"{what}: round trips for each result"
        yield f"{what}: waits for own events for each result"
        yield f"{what}: {results} results, 1 ms RTT"


def sessions_names():
    for after in ("", " after copies"):
        yield f"memory of an idle client{after}"
        yield f"memory of its worker{after} beyond the bare driver's"
    yield "4 idle sessions: begun at once"
    yield "4 idle sessions: of a core, on the server"
    yield "4 idle sessions: each beyond the bare driver"
    yield "fence beside a neighbour that saturates"


NAMES = {
    "start": set(start_names()),
    "steady": set(steady_names()),
    "mnist": set(mnist_names()),
    "sessions": set(sessions_names()),
    "shm-sessions": set(sessions_names()),
}
NUMBERS = {"posted": 9, "fences": 13, "objects": 4, "copies": 16, "tls": 6, "shm-posted": 9, "shm-waits": 6,
           "shm-copies": 4, "slow-link": 6, "emulated": 9}


class Smoke(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as folder:
            path, cls.table = (os.path.join(folder, name) for name in ("json", "table"))
            done = subprocess.run([os.path.join(HERE, "run"), "--build", world.ARGS.build, "--quick",
                                   "--json", path, "--table", cls.table], capture_output=True,
                                  text=True, timeout=400, stdin=subprocess.DEVNULL)
            cls.said = done.stdout + done.stderr
            if done.returncode != 0:
                raise AssertionError(cls.said)
            with open(path, encoding="utf-8") as file:
                cls.groups = json.load(file)["groups"]
            with open(cls.table, encoding="utf-8") as file:
                cls.table = file.read()

    def rows(self, group):
        return {row["row"]: row for row in self.groups[group]["rows"]}

    def test_run_measures_every_group(self):
        for name in GROUPS:
            if name not in NEEDS_MORE or f"{name} is left out: " not in self.said:
                self.assertIn(name, self.groups)

    def test_rows_have_finite_numbers_and_appear_in_table(self):
        for name, group in self.groups.items():
            self.assertTrue(group["rows"], name)
            for row in group["rows"]:
                self.assertTrue(row["columns"], row)
                self.assertIn(row["row"], self.table)
                # A difference between two runs may be negative.
                difference = row["unit"] == "MiB"
                for column in row["columns"].values():
                    self.assertTrue(all(math.isfinite(number) and (number >= 0 or difference)
                                        for number in column.values()), row)

    def test_every_bar_is_judged(self):
        for name in (*bars.BARS, *bars.SHOWN_AGAIN):
            (group,) = (group for group in BY_CALL if name in self.rows(group))
            self.assertIsNotNone(self.rows(group)[name]["met"], name)
        for group, names in (("tls", bars.TLS_BARS), ("shm-waits", bars.SHM_BARS),
                             ("shm-copies", bars.SHM_COPY_BARS), ("slow-link", bars.SLOW_LINK_BARS)):
            for name in names:
                self.assertIsNotNone(self.rows(group)[name]["met"], name)

    def test_expected_rows_have_bars(self):
        for group in self.groups:
            with self.subTest(group=group):
                rows = self.groups[group]["rows"]
                judged = [row["row"] for row in rows if row["met"] is not None]
                if group in NAMES:
                    self.assertEqual(sorted(judged), sorted(NAMES[group]))
                else:
                    self.assertEqual(len(judged), NUMBERS.get(group, 0), judged)
                for row in rows:
                    delayed = row["row"].endswith(" ms RTT") and not row["row"].endswith(" 0 ms RTT")
                    self.assertEqual("nominal_met" in row, delayed, row)

    def test_run_measures_baselines(self):
        for group, baselines in (("fences", ("raw 64-byte ping-pong", "raw 64-byte ping-pong, awake",
                                             "raw futex ping-pong")),
                                 ("copies", ("raw stream x1", "raw stream x1, Reno", "memcpy 64 MiB")),
                                 ("shm-waits", ("raw futex ping-pong",)), ("shm-copies", ("memcpy 64 MiB",)),
                                 ("tls", ("AES-128-GCM on one core", "raw stream x1")),
                                 ("sessions", ("raw ping-pong beside a stream",)),
                                 ("shm-sessions", ("raw ping-pong beside a stream",))):
            for name in baselines:
                self.assertGreater(self.groups[group]["raw"][name]["p50"], 0, name)

    def test_connection_counts_have_raw_streams(self):
        for group, way in itertools.product(("copies", "tls"), ("in", "out")):
            for moment in ("in the end", "at most"):
                counted = self.rows(group)[f"connections of copies {way}, {moment}"]["columns"]["gpurun"]["p99"]
                self.assertIn(f"raw stream x{counted:.0f}", self.groups[group]["raw"])

    def test_under_option_fills_other_column(self):
        """Any command in front of the same client. This one selects the null device itself."""
        leads = "env LD_LIBRARY_PATH=" + shlex.quote(os.path.dirname(world.DRIVERS["null"]))
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "json")
            subprocess.run([os.path.join(HERE, "run"), "--build", world.ARGS.build, "--quick", "--only",
                            "posted,fences,objects", "--under", leads, "--json", path],
                           stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL, timeout=200, check=True)
            with open(path, encoding="utf-8") as file:
                groups = json.load(file)["groups"]
        for group in ("posted", "fences", "objects"):
            for row in groups[group]["rows"]:
                self.assertGreaterEqual(row["columns"]["other"]["p50"], 0, row)

    def test_round_trips_are_counted(self):
        """Nothing is faster than the worker's answer plus the result itself. A connect may be
        missed on a busy machine."""
        for row in ("warm, plaintext: round trips, one after the other",
                    "cold, TLS: round trips, one after the other"):
            self.assertGreaterEqual(self.rows("start")[row]["columns"]["gpurun"]["p50"], 2)
        (each,) = (row for name, row in self.rows("steady").items()
                   if name == "copy: round trips for each result")
        self.assertEqual(each["columns"]["gpurun"]["p50"], 1)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]], verbosity=2)
