#!/usr/bin/env python3
"""Unloads: the end of a module costs no round trip once a wait has shown that the work of its context
is complete. Otherwise the program waits, because the end of a module prints what its kernels have
printed (driver_output shows that it does).

Counts the entries and the round trips of the function in --stats. Measures no time.
"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../support"))
import world  # noqa: E402


def unloads(server, command):
    done = world.measured(server, command)
    if done.status != 0 or len(done.statistics) != 1:
        sys.exit(f"WRONG: status {done.status}\n{done.stdout}{done.stderr}{server.log()}")
    counted = {function["name"]: function for function in done.statistics[0]["functions"]}["cuModuleUnload"]
    print(f"{os.path.basename(command[0])}: {counted['entries']} times, {counted['fences']} round trips")
    return counted["entries"], counted["fences"]


def main():
    fatbin, ptx, images, output = sys.argv[1:]
    with world.Gpurund() as server:
        entries, fences = unloads(server, [images, fatbin, ptx])
        if entries < 3 or fences != 0:
            sys.exit("WRONG: the end of a module behind complete work waits for its reply")
        if unloads(server, [output, fatbin]) != (1, 1):
            sys.exit("WRONG: the end of a module behind work that may print does not wait")


main()
