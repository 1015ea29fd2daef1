#!/usr/bin/env python3
"""Own streams: a thread that reads a result in its own stream (CU_STREAM_PER_THREAD) waits for the copy
alone. A wait or a query of that stream right behind it costs no round trip (docs/adr/0024).

Counts the entries and the round trips of the functions in --stats. Measures no time.
"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../support"))
import world  # noqa: E402

# The program waits and queries so often behind such a copy.
ROUNDS = 20


def main():
    with world.Gpurund() as server:
        done = world.measured(server, [sys.argv[2], sys.argv[1]])
        if done.status != 0 or len(done.statistics) != 1:
            sys.exit(f"WRONG: status {done.status}\n{done.stdout}{done.stderr}{server.log()}")
    functions = {function["name"]: function for function in done.statistics[0]["functions"]}
    for name in ("cuStreamSynchronize", "cuStreamQuery"):
        entries, fences = (functions[name][key] for key in ("entries", "fences"))
        print(f"{name}: {entries} times, {fences} round trips")
        if fences == 0 or fences > entries - ROUNDS:
            sys.exit(f"WRONG: {name} of a stream that is known to be complete asks the server")


main()
