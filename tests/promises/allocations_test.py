#!/usr/bin/env python3
"""Protects: an allocation of device memory that the client has credits for waits for nobody, and the
first ones come with the attach; beyond them it is one fence, each time for more; without windows each
allocation is one.

Counts what --stats says of cuMemAlloc; no time is measured.
"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import world  # noqa: E402

MIB = 1 << 20
# Allocations, bytes of each, rounds; the least and the most fences with windows. 8 MiB are there from the
# attach on: what fits into them asks for nothing. What is asked for begins at 32 MiB and doubles up to
# 256 MiB; what is idle beyond 128 MiB goes back and must be asked for again.
CASES = (
    (500, 4096, 3, 0, 0),
    (8, MIB, 1, 0, 0),
    (9, MIB, 1, 1, 1),
    (31, MIB, 5, 1, 1),
    (40, MIB, 5, 1, 2),
    (100, MIB, 1, 2, 3),
)


def counted(server, words, name, windows="on"):
    """What --stats says of the function `name`."""
    done = world.measured(server, words, GPURUN_DEVICE_WINDOWS=windows)
    if done.status != 0 or len(done.statistics) != 1:
        sys.exit(f"WRONG: status {done.status}\n{done.stdout}{done.stderr}{server.log()}")
    for function in done.statistics[0]["functions"]:
        if function["name"] == name:
            return function
    sys.exit(f"WRONG: {name} was not counted")


def fences(server, program, count, size, rounds, windows="on"):
    words = [program, "count", str(count), str(size), str(rounds)]
    function = counted(server, words, "cuMemAlloc_v2", windows)
    if function["entries"] != count * rounds:
        sys.exit(f"WRONG: {function}")
    return function["fences"]


def main():
    program = sys.argv[1]
    wrong = []
    with world.Gpurund() as server:
        for count, size, rounds, least, most in CASES:
            waited = fences(server, program, count, size, rounds)
            print(f"{rounds} times {count} allocations of {size} bytes: {waited} fences")
            if not least <= waited <= most:
                wrong.append(f"{waited} fences, expected {least} to {most}")
        waited = fences(server, program, 50, 4096, 2, "off")
        print(f"without windows: 100 allocations, {waited} fences")
        if waited != 100:
            wrong.append(f"{waited} fences without windows, expected 100")
        # The worker waits for the context behind a free, which a capture forbids: it must not begin yet.
        waited = counted(server, [program, "capture"], "cuMemFree_v2")["fences"]
        print(f"a capture that begins while a free is under way: {waited} fences")
        if waited != 1:
            wrong.append(f"{waited} fences before the capture, expected 1")
    if wrong:
        print("WRONG:", *wrong, sep="\n")
    return 1 if wrong else 0


sys.exit(main())
