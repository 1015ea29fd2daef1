#!/usr/bin/env python3
"""Trace: `gpurun --trace` and `gpuctl trace` show each launch once in the program, once in the
worker and once on the device. These are the launches of the device's own log, by number, name,
stream, order and duration. Recording never breaks a run, whatever happens to its files. Wrong
options are refused.
"""
import collections
import glob
import json
import os
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../support"))
import world  # noqa: E402
from world import environment, gpurun  # noqa: E402

PROGRAM = sys.argv.pop()
ROUNDS = 25
NAMES = ["observed_first", "observed_second"]

Logged = collections.namedtuple("Logged", "number stream level begin end result name")


def gpuctl(*words):
    return subprocess.run([world.GPUCTL, *words], env=environment(), capture_output=True, text=True,
                          timeout=world.SECONDS)


class Case(unittest.TestCase):
    driver = "emulated"

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.traces = os.path.join(self.folder.name, "traces")
        self.log = os.path.join(self.folder.name, "kernels")
        self.server = world.Gpurund(driver=world.DRIVERS[self.driver],
                                    env=environment(GPURUN_EMULATED="log=" + self.log))
        self.server.__enter__()
        self.addCleanup(self.server.__exit__, None, None, None)

    def run_traced(self, *command, status=0, stdout="done\n"):
        done = gpurun("--trace", self.traces, *self.server.options(), "--", *command)
        self.assertEqual((done.returncode, done.stdout), (status, stdout), done.stderr)
        return done.stderr

    def timeline(self):
        out = os.path.join(self.folder.name, "out.json")
        done = gpuctl("trace", self.traces, "-o", out)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, out + "\n", ""))
        with open(out, encoding="utf-8") as file:
            return json.load(file)

    def logged(self):
        with open(self.log, encoding="utf-8") as file:
            rows = [line.rstrip("\n").split(" ", 10) for line in file]
        return [Logged(int(row[1]), int(row[3]), int(row[4]), int(row[5]), int(row[6]), int(row[7]), row[10])
                for row in rows]


def slices(timeline, category):
    return [each for each in timeline["traceEvents"] if each["ph"] == "X" and each["cat"] == category]


def flows(timeline, phase):
    """The places of the phase's ends of flows, by flow."""
    return {each["id"]: (each["tid"], each["ts"]) for each in timeline["traceEvents"] if each["ph"] == phase}


def nanoseconds(microseconds):
    return round(1000 * microseconds)


class TracedLaunches(Case):
    def test_traced_launches_match_device_log(self):
        self.assertEqual(self.run_traced(PROGRAM, str(ROUNDS)), "")
        timeline, log = self.timeline(), self.logged()
        self.assertEqual(sorted(each.name for each in log), sorted(NAMES * ROUNDS))
        self.assertEqual({(each.level, each.result) for each in log}, {(0, 0)})
        rows = collections.defaultdict(list)
        for each in slices(timeline, "kernel"):
            rows[each["tid"]].append(each)
        streams = collections.defaultdict(list)
        for each in log:
            streams[each.stream].append(each)
        self.assertEqual(len(rows), len(streams))
        # Launch for launch, in the order of each stream.
        shown = sorted([(each["args"]["call"], each["name"], nanoseconds(each["dur"]))
                        for each in sorted(row, key=lambda each: each["ts"])] for row in rows.values())
        told = sorted([(each.number, each.name, each.end - each.begin) for each in stream]
                      for stream in streams.values())
        self.assertEqual(shown, told)
        for stream in told:
            self.assertEqual([number for number, *_ in stream], sorted(number for number, *_ in stream))
        # The program's own rows, and the worker's.
        numbers = {each.number: each.name for each in log}
        for category in ("call", "issue"):
            with self.subTest(category=category):
                made = {each["args"]["call"]: each["args"]["kernel"]
                        for each in slices(timeline, category) if each["name"] == "cuLaunchKernel"}
                self.assertEqual(made, numbers)

    def test_flows_link_program_worker_and_device(self):
        self.run_traced(PROGRAM, str(ROUNDS))
        timeline = self.timeline()
        begun, passed, ended = (flows(timeline, phase) for phase in "stf")
        kernels = slices(timeline, "kernel")
        self.assertEqual(len(kernels), 2 * ROUNDS)
        (facts,) = timeline["otherData"]["processes"]
        error = facts["clock_error_us"]
        flow_of = {place: flow for flow, place in ended.items()}
        issues = {each["args"]["call"]: (each["tid"], each["ts"]) for each in slices(timeline, "issue")}
        for kernel in kernels:
            flow = flow_of[kernel["tid"], kernel["ts"]]
            self.assertEqual(passed[flow], issues[kernel["args"]["call"]])
            self.assertLessEqual(begun[flow][1], passed[flow][1] + error)
            self.assertLessEqual(passed[flow][1], kernel["ts"])  # Times of one clock.
        # The program's waits lie within the calls that waited.
        calls = {each["args"].get("call"): each for each in slices(timeline, "call")}
        fences = [each for each in slices(timeline, "fence")]
        self.assertGreaterEqual(len(fences), ROUNDS)
        for each in fences:
            call = calls[each["args"]["call"]]
            self.assertGreaterEqual(each["ts"], call["ts"])
            self.assertLessEqual(each["ts"] + each["dur"], call["ts"] + call["dur"] + 0.001)
        self.assertEqual((facts["dropped_of_the_program"], facts["dropped_of_the_worker"]), (0, 0))
        self.assertEqual(facts["worker"], "recorded")

    def test_trace_separates_processes(self):
        self.run_traced("sh", "-c", '"$0" 2 & "$0" 3; wait', PROGRAM, stdout="done\ndone\n")
        timeline = self.timeline()
        self.assertEqual(len(timeline["otherData"]["processes"]), 2)
        counts = collections.Counter(each["pid"] for each in slices(timeline, "kernel"))
        self.assertEqual(sorted(counts.values()), [4, 6])


class NullDeviceTraces(Case):
    driver = "null"

    def test_trace_omits_kernel_rows_without_driver_times(self):
        self.run_traced(PROGRAM, "3")
        timeline = self.timeline()
        self.assertEqual(slices(timeline, "kernel"), [])
        (facts,) = timeline["otherData"]["processes"]
        self.assertIn("does not report", facts["kernels"])
        for category in ("call", "issue"):
            launches = sorted((each["args"]["call"], each["args"]["kernel"])
                              for each in slices(timeline, category) if each["name"] == "cuLaunchKernel")
            self.assertEqual([kernel for _, kernel in launches], NAMES * 3)
        self.assertEqual(len(flows(timeline, "f")), len(flows(timeline, "s")))  # They end in the worker.

    def test_stats_with_trace_count_only_program_calls(self):
        done = gpurun("--stats", "--trace", self.traces, *self.server.options(), "--", PROGRAM, "3")
        self.assertRegex(done.stderr, r"\ncuLaunchKernel +6 +0 ")
        self.assertNotIn("(other)", done.stderr)
        # The load and the end. Memory came with the attach, unless the sanitizer occupies its
        # addresses.
        elsewhere = 1 if world.ARGS.sanitizer == "thread" else 0
        self.assertIn(len(slices(self.timeline(), "fence")) - 3, (4, 4 + elsewhere))

    def test_unwritable_trace_does_not_fail_run(self):
        said = self.run_traced("sh", "-c", 'rmdir "$0" && exec "$1" 3', self.traces, PROGRAM)
        self.assertRegex(said, r"^gpurun: warning: no trace is left of this process: /.*\n$")
        if world.ARGS.sanitizer == "thread":
            return  # ThreadSanitizer keeps a file of its own, and does not start without it.
        done = gpurun("--trace", self.traces, *self.server.options(), "--",
                      "sh", "-c", 'ulimit -f 1; exec "$0" 3', PROGRAM)
        self.assertEqual((done.returncode, done.stdout), (0, "done\n"))
        self.assertIn("larger than files of this process may be", done.stderr)

    def test_killed_program_leaves_no_trace(self):
        self.assertEqual(self.run_traced(PROGRAM, "3", "killed", status=-signal.SIGKILL, stdout=""), "")
        done = gpuctl("trace", self.traces)
        self.assertEqual((done.returncode, done.stdout), (125, ""))
        self.assertIn("no trace is in it", done.stderr)

    def test_trace_files_are_private_and_written_only_on_request(self):
        self.run_traced(PROGRAM, "1")
        (file,) = glob.glob(os.path.join(self.traces, "*"))
        self.assertRegex(os.path.basename(file), r"^statistics_client\.\d+\.gpurun-trace$")
        self.assertEqual(os.stat(file).st_mode & 0o777, 0o600)
        empty = os.path.join(self.folder.name, "empty")
        os.mkdir(empty)
        done = gpurun(*self.server.options(), "--", PROGRAM, "1", cwd=empty)
        self.assertEqual((done.returncode, done.stderr, os.listdir(empty)), (0, "", []))

    def test_links_are_not_followed(self):
        """In a folder that others can write to, a name may be their link to a file of the user's."""
        self.run_traced(PROGRAM, "1")
        kept, link = (os.path.join(self.folder.name, name) for name in ("kept", "link.json"))
        with open(kept, "w", encoding="utf-8") as file:
            file.write("of the user")
        os.symlink(kept, link)
        dangling = os.path.join(self.folder.name, "dangling.json")
        os.symlink(os.path.join(self.folder.name, "nowhere"), dangling)
        hard = os.path.join(self.folder.name, "hard.json")
        os.link(kept, hard)
        for path, said in ((link, "this is a link"), (dangling, "this is a link"), (hard, "another name")):
            done = gpuctl("trace", self.traces, "-o", path)
            self.assertEqual((done.returncode, done.stdout), (125, ""), path)
            self.assertIn(said, done.stderr)
        with open(kept, encoding="utf-8") as file:
            self.assertEqual(file.read(), "of the user")
        self.assertFalse(os.path.exists(os.path.join(self.folder.name, "nowhere")))
        # The user chose the name, so an existing file is overwritten.
        out = os.path.join(self.folder.name, "gpurun-trace.json")
        for _ in range(2):
            done = subprocess.run([world.GPUCTL, "trace", self.traces], env=environment(), text=True,
                                  capture_output=True, timeout=world.SECONDS, cwd=self.folder.name)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            with open(out, encoding="utf-8") as file:
                json.load(file)
        os.unlink(out)
        os.symlink(kept, out)
        done = subprocess.run([world.GPUCTL, "trace", self.traces], env=environment(), text=True,
                              capture_output=True, timeout=world.SECONDS, cwd=self.folder.name)
        self.assertIn("this is a link", done.stderr)
        os.symlink(kept, os.path.join(self.traces, "planted.1.gpurun-trace"))
        done = gpuctl("trace", self.traces, "-o", "-")
        self.assertEqual(done.returncode, 125)
        self.assertIn("this is a link, and is not followed", done.stderr)

    def test_trace_refuses_wrong_arguments(self):
        for word in ("/dev/null", "/dev/null/x", "/proc/1/no/such", ""):
            with self.subTest(word=word):
                done = gpurun("--trace", word, *self.server.options(), "--", "true")
                self.assertEqual((done.returncode, done.stdout), (125, ""))
                self.assertRegex(done.stderr, r"^gpurun: --trace.*\n$")
        for words, status in (([], 2), (["-o", "x"], 2), (["/no/such"], 125), ([PROGRAM], 125),
                              ([self.folder.name], 125)):
            with self.subTest(words=words):
                done = gpuctl("trace", *words)
                self.assertEqual((done.returncode, done.stdout), (status, ""))
                self.assertRegex(done.stderr, r"^gpuctl: .+\n$")
        self.run_traced(PROGRAM, "1")
        done = gpuctl("trace", self.traces, "-o", "/no/such/folder/x")
        self.assertEqual((done.returncode, done.stdout), (125, ""))


if __name__ == "__main__":
    unittest.main(verbosity=2)
