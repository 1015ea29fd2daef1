#!/usr/bin/env python3
"""Protects: a program waits for the network as often as it reads a result, starting costs few round
trips, and --stats says the truth about both.

Three runs with round-trip times of 0, 20 and 40 ms on the wire; the slope of the time over the
round-trip time is the number of round trips that were really waited for.
"""
import re
import sys
import tempfile

import world

STEPS, READS = 10, 1
STARTUP_MAX = 10
TOLERANCE = 0.2
DELAYS_S = (0.0, 0.020, 0.040)
ROUNDS = 5


def slope(points):
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    return (sum((x - mean_x) * (y - mean_y) for x, y in points) /
            sum((x - mean_x) ** 2 for x, _ in points))


def measure(build, server, command):
    """Per delay the best of some runs: (seconds of the loop, seconds of the whole), statistics."""
    loop, whole, statistics = [], [], None
    for delay in DELAYS_S:
        best_loop = best_whole = float("inf")
        for _ in range(ROUNDS):
            with world.DelayProxy(server.port(), delay) as proxy:
                done = world.run(build, server, command, proxy.address)
            if done.status != 0 or len(done.statistics) != 1:
                sys.exit(f"WRONG: status {done.status}, {len(done.statistics)} statistics\n"
                         f"{done.stdout}{done.stderr}{server.log()}")
            statistics = done.statistics[0]
            took = float(re.search(r"took ([0-9.]+) ms", done.stdout).group(1)) / 1000
            best_loop, best_whole = min(best_loop, took), min(best_whole, done.seconds)
        loop.append((delay, best_loop))
        whole.append((delay, best_whole))
    return loop, whole, statistics


def main():
    build, program = sys.argv[1:3]
    wrong = []
    with tempfile.TemporaryDirectory() as folder, world.Server(build, folder) as server:
        warm = world.run(build, server, [program, str(STEPS), str(READS)])  # The server knows the image.
        print(warm.stdout, warm.stderr)
        loop, whole, statistics = measure(build, server, [program, str(STEPS), str(READS)])
    in_loop = slope(loop)
    in_all = slope(whole)
    printed = statistics["blocking_round_trips"]
    results = STEPS * READS + 1  # In the loop; the first step reads one more.
    print(f"loop: {in_loop:.2f} round trips for {results} results read; "
          f"whole run: {in_all:.2f}, printed {printed} "
          f"({statistics['attach_round_trips']} of them to attach)")
    for function in statistics["functions"]:
        if function["fences"]:
            print(f"  {function['name']}: {function['fences']} of {function['calls']} waited")
    if abs(in_loop - results) > TOLERANCE:
        wrong.append(f"the loop waited for {in_loop:.2f} round trips, not {results}")
    startup = printed - results
    if startup > STARTUP_MAX:
        wrong.append(f"start-up took {startup} round trips, more than {STARTUP_MAX}")
    # gpurun's own link is no part of the process's statistics.
    control = in_all - printed
    print(f"gpurun's control link: {control:.2f}")
    if abs(control - round(control)) > TOLERANCE or not 0 <= round(control) <= 3:
        wrong.append(f"whole run {in_all:.2f} less {printed} leaves {control:.2f} for gpurun's link")
    for line in wrong:
        print("WRONG:", line)
    return 1 if wrong else 0


sys.exit(main())
