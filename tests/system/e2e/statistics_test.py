#!/usr/bin/env python3
"""Statistics: the numbers of --stats are exact on both sides of the wire. A program of known calls
gets its exact numbers of calls, fences and bytes. The worker has served as many as the client has
sent. Neither a worker that does not answer at the end nor a program that dies blocks the run.
"""
import os
import re
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../support"))
import world  # noqa: E402
from world import gpurun  # noqa: E402

PROGRAM = sys.argv.pop()
ROUNDS = 25


def by_name(functions):
    return {each["name"]: each for each in functions}


class StatsOption(unittest.TestCase):
    def measured(self, *words, **changes):
        with world.Gpurund() as server:
            done = world.measured(server, [PROGRAM, *words], **changes)
        self.assertEqual((done.status, done.stderr), (0, ""))
        self.assertEqual(len(done.statistics), 1)
        return done.statistics[0]

    def test_counts_are_exact_for_known_calls(self):
        told = self.measured(str(ROUNDS))
        client, worker = by_name(told["functions"]), by_name(told["worker"]["functions"])
        for name, calls, fences in (("cuLaunchKernel", 2 * ROUNDS, 0), ("cuMemcpyDtoH_v2", ROUNDS, ROUNDS),
                                    ("cuStreamCreate", 2, 0), ("cuStreamDestroy_v2", 2, 0),
                                    ("cuMemFree_v2", 1, 0), ("cuModuleUnload", 1, 1)):
            with self.subTest(function=name):
                self.assertEqual(client[name]["entries"], calls)
                if name == "cuMemFree_v2":  # A free also returns memory that was granted beyond need.
                    self.assertGreaterEqual(client[name]["calls"], calls)
                else:
                    self.assertEqual(client[name]["calls"], calls)
                self.assertEqual(client[name]["fences"], fences)
                self.assertEqual(client[name]["waits"], 0)
        self.assertEqual(client["cuMemcpyDtoH_v2"]["received_bytes"], 4 * ROUNDS)
        self.assertEqual(client["cuLaunchKernel"]["sent_bytes"], 0)
        self.assertGreater(client["cuMemcpyDtoH_v2"]["longest_us"], 0)
        self.assertLessEqual(client["cuMemcpyDtoH_v2"]["longest_us"], client["cuMemcpyDtoH_v2"]["waited_us"])
        # The worker served exactly the calls that were sent.
        sent = {name: each["calls"] for name, each in client.items() if each["calls"]}
        self.assertEqual(sent, {name: each["calls"] for name, each in worker.items()})
        self.assertEqual([name for name, each in worker.items() if each["failures"]], [])
        self.assertEqual({name: each["record_bytes"] + each["sent_bytes"]
                          for name, each in client.items() if each["calls"]},
                         {name: each["bytes_in"] for name, each in worker.items()})
        self.assertEqual(worker["cuMemcpyDtoH_v2"]["bytes_out"], 4 * ROUNDS)
        self.assertEqual(worker["cuLaunchKernel"]["bytes_out"], 0)
        self.assertGreater(worker["cuLaunchKernel"]["driver_us"], 0)
        self.assertEqual(sum(sent.values()), told["calls"])

    def test_worker_receives_batches_as_sent(self):
        told = self.measured(str(ROUNDS))
        sent, came = told["batches"], told["worker"]["batches"]
        # The worker's last batch is the query for its numbers, which the program does not count.
        self.assertEqual(came["count"], sent["count"] + 1)
        self.assertEqual(came["records"], sent["records"] + 1)
        self.assertEqual(sent["records"], told["calls"])
        self.assertEqual(sum(sent["by_records"]), sent["count"])
        self.assertEqual(sum(sent["by_bytes"]), sent["count"])
        self.assertEqual(sent["bytes"], sum(each["record_bytes"] for each in told["functions"]))
        replies = told["worker"]["replies"]
        self.assertEqual(sum(replies["by_items"]), replies["frames"])
        self.assertGreaterEqual(replies["items"], sum(each["fences"] for each in told["functions"]))

    def test_round_trips_include_statistics_query(self):
        told = self.measured(str(ROUNDS))
        fences = sum(each["fences"] for each in told["functions"])
        self.assertEqual(told["report_round_trips"], 1)
        self.assertEqual(told["blocking_round_trips"], fences + told["attach_round_trips"] + 1)

    def test_run_without_stats_prints_nothing(self):
        with world.Gpurund() as server:
            done = gpurun(*server.options(), "--", PROGRAM, "3")
            self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "done\n", ""))

    def test_stats_table_lists_calls_batches_and_round_trips(self):
        with world.Gpurund() as server:
            done = gpurun("--stats", *server.options(), "--", PROGRAM, "3")
        self.assertEqual((done.returncode, done.stdout), (0, "done\n"))
        for line in (r"^cuLaunchKernel +6 +0 ", r"^in the worker +calls ", r"^batches sent: \d+, ",
                     r"^batches that came: \d+, ",
                     r"blocking round trips: \d+, of them \d to attach, and 1 to ask for the worker's",
                     r"^  cuModuleLoadDataEx waited \d.*\(1 round trips.*there \d.* in the driver"):
            self.assertRegex(done.stderr, re.compile(line, re.M))
        self.assertLessEqual(max(map(len, done.stderr.splitlines())), 200)

    # The lease outlives the program here, because the daemon kills the worker at the end of the
    # lease.
    def test_worker_logs_counts_of_program_without_statistics(self):
        numbers = re.compile(r"info: the worker of a process that has left no statistics counted "
                             r"\d+ calls in \d+ batches"
                             r"(; \w+: \d+ calls, \d+ us in the driver, \d+ us queued)+\n")
        line = re.compile("warning: a process has left no statistics or trace, as when a signal ends it\n")
        for how, status in (("killed", 128 + signal.SIGKILL), ("leave", 0)):
            with self.subTest(how=how), world.Gpurund(env=world.environment(GPURUN_LOG="info")) as server:
                words = ["sh", "-c", '"$0" 4 "$1"; echo $?; read line', PROGRAM, how]
                run = subprocess.Popen([world.GPURUN, "--stats", *server.options(), "--", *words],
                                       env=world.environment(), stdin=subprocess.PIPE,
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                self.assertEqual(run.stdout.readline(), f"{status}\n")
                world.until(lambda: numbers.search(server.log()), "the worker's numbers")
                world.until(lambda: line.search(server.log()), "the worker's line")
                _, errors = run.communicate("\n", timeout=world.SECONDS)
                self.assertNotIn("gpurun", errors)

    def test_last_output_of_killed_program_stays_visible(self):
        """A private server logs to the terminal. After the program's output comes one short line
        with --stats, and none without."""
        words = ["sh", "-c", '"$0" 4 killed; echo last words >&2; echo over; read line', PROGRAM]
        for options, most in (["--stats"], 1), ([], 0):
            run = subprocess.Popen([world.GPURUN, "-q", *options, "--", *words], env=world.environment(),
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True)
            self.assertEqual(run.stdout.readline(), "over\n")
            _, errors = run.communicate("\n", timeout=world.SECONDS)
            ours = [each for each in errors.splitlines() if each.startswith("gpurun")]
            self.assertLessEqual(len(ours), most, errors)
            self.assertLess(max(map(len, ours), default=0), 120, errors)
            self.assertIn("last words\n", errors)


if __name__ == "__main__":
    unittest.main(verbosity=2)
