#!/usr/bin/env python3
"""Allocations: within the client's credits they need no round trip, and the first credits come with
the attach. Beyond them an allocation is one fence, which fetches more each time. Without windows
each allocation is one fence. A free sends one record at most, and none without work since the last
one. Frees that are ahead of the device neither fetch nor return credits.

Counts the entries of cuMemAlloc and cuMemFree in --stats, also those that the worker ran. Measures
no time.
"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../support"))
import world  # noqa: E402

MIB = 1 << 20
# Allocations, bytes of each, rounds, and the least and the most fences with windows. The attach
# brings 8 MiB, which need no request. Requests begin at 32 MiB and double up to 256 MiB. Idle
# memory beyond 128 MiB goes back, and must be requested again.
CASES = (
    (500, 4096, 3, 0, 0),
    (8, MIB, 1, 0, 0),
    (9, MIB, 1, 1, 1),
    (31, MIB, 5, 1, 1),
    (40, MIB, 5, 1, 2),
    (100, MIB, 1, 2, 3),
)
# Pairs of an allocation and its free, bytes of each, whether there is work between both, the most
# fences of the allocations, and the most records of the frees.
PAIRS = (
    (20000, MIB, False, 0, 1),
    (20000, 4096, False, 0, 1),
    # On a busy machine the wait of some allocations times out. They then request credits.
    (3000, MIB, True, 30, 3600),
)


def statistics(server, words, windows="on"):
    """The numbers of the program's one process."""
    done = world.measured(server, words, GPURUN_DEVICE_WINDOWS=windows)
    if done.status != 0 or len(done.statistics) != 1:
        sys.exit(f"WRONG: status {done.status}\n{done.stdout}{done.stderr}{server.log()}")
    return done.statistics[0]


def entry(numbers, name):
    for function in numbers["functions"]:
        if function["name"] == name:
            return function
    sys.exit(f"WRONG: {name} was not counted")


def counted(server, words, name, windows="on"):
    """The entry of the function `name` in --stats."""
    return entry(statistics(server, words, windows), name)


def fences(server, program, count, size, rounds, windows="on"):
    words = [program, "count", str(count), str(size), str(rounds)]
    function = counted(server, words, "cuMemAlloc_v2", windows)
    if function["entries"] != count * rounds:
        sys.exit(f"WRONG: {function}")
    return function["fences"]


def pairs(server, program, count, size, work):
    """The fences of the allocations, the records of the frees, and what the worker ran of these."""
    words = [program, "pairs", str(count), str(size), "work" if work else "idle"]
    numbers = statistics(server, words)
    allocated, freed = (entry(numbers, name) for name in ("cuMemAlloc_v2", "cuMemFree_v2"))
    if allocated["entries"] != count or freed["entries"] != count:
        sys.exit(f"WRONG: {allocated} {freed}")
    ran = sum(function["calls"] for function in numbers["worker"]["functions"]
              if function["name"] in ("cuMemAlloc_v2", "cuMemFree_v2"))
    return allocated["fences"], freed["calls"], ran


def main():
    program = sys.argv[1]
    wrong = []
    with world.Gpurund() as server:
        for count, size, rounds, least, most in CASES:
            waited = fences(server, program, count, size, rounds)
            print(f"{rounds} times {count} allocations of {size} bytes: {waited} fences")
            if not least <= waited <= most:
                wrong.append(f"{waited} fences, expected {least} to {most}")
        for count, size, work, fences_most, records_most in PAIRS:
            waited, records, ran = pairs(server, program, count, size, work)
            print(f"{count} pairs of {size} bytes, {'with' if work else 'without'} work: {waited} fences, "
                  f"{records} records of frees, {ran} calls in the worker")
            if waited > fences_most or records > records_most or ran > waited + records:
                wrong.append(f"{waited} fences, {records} records and {ran} calls, expected at most "
                             f"{fences_most}, {records_most} and their sum")
        waited = fences(server, program, 50, 4096, 2, "off")
        print(f"without windows: 100 allocations, {waited} fences")
        if waited != 100:
            wrong.append(f"{waited} fences without windows, expected 100")
        # Behind a free the worker waits for the context, which a capture forbids. The capture must
        # not begin yet.
        waited = counted(server, [program, "capture"], "cuMemFree_v2")["fences"]
        print(f"a capture that begins while a free is under way: {waited} fences")
        if waited != 1:
            wrong.append(f"{waited} fences before the capture, expected 1")
    if wrong:
        print("WRONG:", *wrong, sep="\n")
    return 1 if wrong else 0


sys.exit(main())
