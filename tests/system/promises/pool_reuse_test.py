#!/usr/bin/env python3
"""Pool reuse: a program that allocates and frees the same sizes in a stream waits for a reply at the
first allocations alone. Later allocations take memory that the stream has freed (docs/adr/0057).

Counts the entries and the round trips of the function in --stats. Measures no time.
"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../support"))
import world  # noqa: E402

# The program makes seven loops of 100 rounds with two allocations each: five in a non-blocking stream,
# one in the legacy stream beside no blocking stream, and one in a blocking stream. A wait and a copy end
# each loop, and memory goes back to the driver then. So each loop waits twice, and no round waits. The
# eighth loop has a wait in each of its 100 rounds, across which the pool holds on to its memory.
ENTRIES = 1500
ROUND_TRIPS_MAX = 7 * 2 + 1


def main():
    with world.Gpurund() as server:
        done = world.measured(server, [sys.argv[2], sys.argv[1], "rounds"])
        if done.status != 0 or len(done.statistics) != 1:
            sys.exit(f"WRONG: status {done.status}\n{done.stdout}{done.stderr}{server.log()}")
    functions = {function["name"]: function for function in done.statistics[0]["functions"]}
    counted = functions["cuMemAllocAsync"]
    print(f"cuMemAllocAsync: {counted['entries']} times, {counted['fences']} round trips")
    if counted["entries"] != ENTRIES or functions["cuMemFreeAsync"]["entries"] != ENTRIES:
        sys.exit(f"WRONG: the program has not made {ENTRIES} of each call")
    if counted["fences"] > ROUND_TRIPS_MAX:
        sys.exit(f"WRONG: more than {ROUND_TRIPS_MAX} round trips")


main()
