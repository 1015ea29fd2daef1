#!/usr/bin/env python3
"""References: perftest's numbers and gpurun's in the same guest, as JSON rows of what, value and unit. Takes
the words of `world`. Figures of a guest are only good for ratios between them."""
import json
import os
import time

import faults
import sessions
from perftest import AVERAGE_MB_S, TYPICAL_US, result
from sessions import world

# Calls of bench_client that wait for the device, each of them a round trip.
CALLS = ("launch + stream synchronise", "copy out 4 B")
COPIES = "copy in 64 KiB, pinned, one after another"  # Without end here. The link's counter shows their rate.
RATE_SECONDS = 5
TRANSPORTS = ("tcp", "rdma")
CLIENT = os.path.join(world.ARGS.build, "bench/bench_client")


def round_trip(tool, *words):
    return 2 * result(tool, *words)[TYPICAL_US]  # perftest reports half of it.


def perftest_rows():
    yield "ib_send_lat -e, 2 B there and back", round_trip("ib_send_lat", "-e", "-n", "300"), "us"
    yield "ib_send_lat, 2 B there and back", round_trip("ib_send_lat", "-n", "300"), "us"
    yield "ib_write_lat, 2 B there and back", round_trip("ib_write_lat", "-n", "300"), "us"
    yield "ib_write_bw, 64 KiB", result("ib_write_bw", "-n", "300", "-s", "65536")[AVERAGE_MB_S], "MiB/s"


def copy_rate(serving):
    """Bytes that cross the link, with their heads, in MiB/s as those of perftest."""
    with sessions.Process(serving, CLIENT, "--row", COPIES, "600", "copies", GPURUN_PACKING="off",
                          GPURUN_BULK_CONNECTIONS="1") as process:
        process.reads("ready")
        begin, before = time.monotonic(), faults.sent_bytes("va")
        time.sleep(RATE_SECONDS)
        return (faults.sent_bytes("va") - before) / (time.monotonic() - begin) / (1 << 20)


def gpurun_rows(transport):
    with sessions.server(driver=world.DRIVERS["null"], over=transport) as server:
        run = sessions.measured(server, CLIENT, "--quick", "fences")
        if run.status != 0:
            raise RuntimeError(run.stderr)
        said, found = run.statistics[0]["transport"], json.loads(run.stdout)
        for name in CALLS:
            yield f"gpurun, {said}: {name}", found[name]["p50"] / 1000, "us"
        yield f"gpurun, {said}: {COPIES}", copy_rate(server), "MiB/s"


def rows():
    yield from perftest_rows()
    for transport in TRANSPORTS:
        yield from gpurun_rows(transport)


if __name__ == "__main__":
    for row in rows():
        print(json.dumps(row), flush=True)
