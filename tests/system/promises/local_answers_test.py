#!/usr/bin/env python3
"""Local answers: values that the client computes by itself (occupancy, attributes of devices,
kernels and pointers) never need the server. The exception is numbers that are not attributes of a
function. tests/programs/behaviour/local_answers.cu compares the answers with a driver's.

Counts the entries of those functions in --stats. Measures no time.
"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../support"))
import world  # noqa: E402

ANSWERED_HERE = ("cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags", "cuOccupancyAvailableDynamicSMemPerBlock",
                 "cuPointerGetAttribute", "cuPointerGetAttributes", "cuKernelGetAttribute",
                 "cuDeviceGetAttribute")
# The program also queries numbers that are not attributes of a function. The driver refuses those.
SELDOM_ASKED = ("cuFuncGetAttribute",)


def main():
    with world.Gpurund() as server:
        done = world.measured(server, [sys.argv[1]])
        if done.status != 0 or len(done.statistics) != 1:
            sys.exit(f"WRONG: status {done.status}\n{done.stdout}{done.stderr}{server.log()}")
    counted = {function["name"]: function for function in done.statistics[0]["functions"]}
    wrong = []
    for name in ANSWERED_HERE + SELDOM_ASKED:
        if name not in counted:
            wrong.append(f"{name} is not called")
            continue
        entries, calls, fences = (counted[name][key] for key in ("entries", "calls", "fences"))
        print(f"{name}: {entries} times, {calls} calls, {fences} round trips")
        allowed = entries // 8 if name in SELDOM_ASKED else 0
        if entries < 10:
            wrong.append(f"{name} is called {entries} times only, which shows nothing")
        if max(calls, fences) > allowed:
            wrong.append(f"{name} was asked of the server {max(calls, fences)} times")
    if wrong:
        sys.exit("WRONG: " + "; ".join(wrong))


main()
