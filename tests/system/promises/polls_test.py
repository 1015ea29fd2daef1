#!/usr/bin/env python3
"""Polls: a program that polls an event or a stream does not wait for the server. Completions arrive
unrequested, and until then no poll of an event is sent, except one every 100 ms (client/early_answers/early_answers.cc).
Polls of a stream are sent at a bounded rate (client/log/stream_polls.h). With GPURUN_SYNC=1 each poll asks the worker.

Counts the entries of cuEventQuery and cuStreamQuery in --stats. Measures no time.
"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../support"))
import world  # noqa: E402

ROUNDS = 5


def queries(server, program, image, subject="count", **environment):
    """Returns the entry of cuEventQuery in --stats, or that of cuStreamQuery."""
    done = world.measured(server, [program, image, subject, str(ROUNDS)], **environment)
    if done.status != 0 or len(done.statistics) != 1:
        sys.exit(f"WRONG: status {done.status}\n{done.stdout}{done.stderr}{server.log()}")
    name = "cuEventQuery" if subject == "count" else "cuStreamQuery"
    for function in done.statistics[0]["functions"]:
        if function["name"] == name:
            return function
    sys.exit(f"WRONG: {name} was not counted")


def main():
    image, program = sys.argv[1:3]
    with world.Gpurund() as server:
        told = queries(server, program, image)
        asked = queries(server, program, image, GPURUN_SYNC="1")
        streams = {kind: queries(server, program, image, kind) for kind in ("stream", "own", "legacy")}
        each = queries(server, program, image, "stream", GPURUN_SYNC="1")
    print(f"{told['entries']} polls, {told['calls']} calls; with GPURUN_SYNC=1 {asked['entries']} and "
          f"{asked['calls']}")
    if told["entries"] < 1000:
        sys.exit("WRONG: the kernels were too short for what is to be shown")
    if told["calls"] * 1000 > told["entries"]:
        sys.exit("WRONG: polls were sent")
    if asked["calls"] != asked["entries"]:
        sys.exit("WRONG: with GPURUN_SYNC=1 a poll was not sent")
    for kind, counted in streams.items():
        print(f"{kind} stream: {counted['entries']} polls, {counted['calls']} calls")
        if counted["entries"] < 1000:
            sys.exit("WRONG: the kernels were too short for what is to be shown")
    for kind, counted in streams.items():
        if counted["calls"] * 10 > counted["entries"]:
            sys.exit(f"WRONG: polls of the {kind} stream were sent without a bound")
    if each["calls"] != each["entries"]:
        sys.exit("WRONG: with GPURUN_SYNC=1 a poll of a stream was not sent")


main()
