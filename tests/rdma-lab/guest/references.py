#!/usr/bin/env python3
"""References: perftest's numbers and gpurun's in the same guest, as JSON rows of what, value and unit. Takes
the words of `world`. Figures of a guest are only good for ratios between them."""
import json
import os

import sessions
from perftest import AVERAGE_MB_S, TYPICAL_US, result
from sessions import world

# Calls of bench_client that wait for the device, each of them a round trip.
CALLS = ("launch + stream synchronise", "copy out 4 B")


def round_trip(tool, *words):
    return 2 * result(tool, *words)[TYPICAL_US]  # perftest reports half of it.


def perftest_rows():
    yield "ib_send_lat -e, 2 B there and back", round_trip("ib_send_lat", "-e", "-n", "300"), "us"
    yield "ib_send_lat, 2 B there and back", round_trip("ib_send_lat", "-n", "300"), "us"
    yield "ib_write_lat, 2 B there and back", round_trip("ib_write_lat", "-n", "300"), "us"
    yield "ib_write_bw, 64 KiB", result("ib_write_bw", "-n", "300", "-s", "65536")[AVERAGE_MB_S], "MB/s"


def gpurun_rows():
    client = os.path.join(world.ARGS.build, "bench/bench_client")
    with sessions.server(driver=world.DRIVERS["null"]) as server:
        run = sessions.measured(server, client, "--quick", "fences")
    if run.status != 0:
        raise RuntimeError(run.stderr)
    said, found = run.statistics[0]["transport"], json.loads(run.stdout)
    for name in CALLS:
        yield f"gpurun, {said}: {name}", found[name]["p50"] / 1000, "us"


if __name__ == "__main__":
    for row in (*perftest_rows(), *gpurun_rows()):
        print(json.dumps(row), flush=True)
