#!/usr/bin/env python3
"""Exec changes: a program that gives the nodes of an executable graph new parameters at each step
waits for a reply once. Each later change is posted (docs/adr/0056).

Counts the entries and the round trips of the function in --stats. Measures no time.
"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../support"))
import world  # noqa: E402

# The program makes 50 changes of each kind in one loop, of which none may wait. All others are first
# changes of a node, wrong ones, or followed by a change or the end of a graph, which waits.
LOOP = 50
ENTRIES_MIN = {"cuGraphExecKernelNodeSetParams_v2": 80, "cuGraphExecChildGraphNodeSetParams": 54,
               "cuGraphExecHostNodeSetParams": 51, "cuGraphExecMemsetNodeSetParams": 160,
               "cuGraphExecMemcpyNodeSetParams": 156}
# Loops with such changes, where there are several.
LOOPS = {"cuGraphExecMemsetNodeSetParams": 2, "cuGraphExecMemcpyNodeSetParams": 3}
# The changes of another loop, each of which waits: before each the access to the pool of its memory changes.
WAITS_MIN = {"cuGraphExecMemsetNodeSetParams": 50}


def main():
    with world.Gpurund() as server:
        done = world.measured(server, [sys.argv[2], sys.argv[1]])
        if done.status != 0 or len(done.statistics) != 1:
            sys.exit(f"WRONG: status {done.status}\n{done.stdout}{done.stderr}{server.log()}")
    functions = {function["name"]: function for function in done.statistics[0]["functions"]}
    for name, entries_min in ENTRIES_MIN.items():
        counted = functions[name]
        print(f"{name}: {counted['entries']} times, {counted['fences']} round trips")
        if counted["entries"] < entries_min:
            sys.exit(f"WRONG: {counted['entries']} changes only, which shows nothing")
        if counted["fences"] > counted["entries"] - LOOP * LOOPS.get(name, 1):
            sys.exit("WRONG: changes that the driver has accepted before wait for replies")
        if counted["fences"] < WAITS_MIN.get(name, 0):
            sys.exit("WRONG: changes of memory are posted although the access to it has changed")


main()
