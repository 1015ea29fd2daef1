#!/usr/bin/env python3
"""Queries of values that only the program can change (limits of its context, memory pools,
granularities, attributes of streams and of pairs of devices). A program that repeats a query waits
for the server once. It waits again only after it has changed the answer or ended the context. With
GPURUN_SYNC=1 each query waits.

Counts the entries of those functions in --stats. Measures no time.
"""
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../support"))
import world  # noqa: E402

ROUNDS = 100


def asked(server, program, **environment):
    """The program's counts for each function, and those of --stats."""
    done = world.measured(server, [program, "count", str(ROUNDS)], words=("-n", "2"), **environment)
    if done.status != 0 or len(done.statistics) != 1:
        sys.exit(f"WRONG: status {done.status}\n{done.stdout}{done.stderr}{server.log()}")
    said = {name: int(number) for name, number in re.findall(r"^(cu\w+) (\d+)$", done.stdout, re.MULTILINE)}
    return said, {function["name"]: function for function in done.statistics[0]["functions"]}


def main():
    program = sys.argv[1]
    wrong = []
    with world.Gpurund(env={"GPURUN_EMULATED": "devices=2"}) as server:
        said, counted = asked(server, program)
        _, each = asked(server, program, GPURUN_SYNC="1")
    for name, different in said.items():
        entries, calls, fences = (counted.get(name, {}).get(key, 0) for key in ("entries", "calls", "fences"))
        every = each[name]
        print(f"{name}: {entries} times, {calls} calls, {fences} round trips; with GPURUN_SYNC=1 "
              f"{every['entries']} times, {every['fences']} round trips")
        if calls != different or fences != different:
            wrong.append(f"{name} was sent {calls} times, not {different}")
        if every["fences"] != every["entries"] or every["entries"] < 3 * ROUNDS:
            wrong.append(f"with GPURUN_SYNC=1 {name} was not asked each time")
    if len(said) < 8 or wrong:
        sys.exit("WRONG: " + "; ".join(wrong or ["the program said too little"]))


main()
