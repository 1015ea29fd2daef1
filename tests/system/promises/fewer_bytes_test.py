#!/usr/bin/env python3
"""Fewer bytes: the traffic of copies and calls over a slow link. Pages of zeros are not sent.
Compressible data is sent compressed, other data is sent as it is, and all of it arrives unchanged.
Calls that resemble earlier ones take a fraction of their bytes, when the link is slow and nothing
forbids it.

Its words: the image and the programs driver_packed_copies and driver_packed_calls.
"""
import json
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../support"))
import world  # noqa: E402

ROUND_TRIP_S = 0.001
LINK_BYTES_PER_S = 100_000_000 // 8  # 100 Mbit/s.
CALLS_BYTES_PER_S = 25_000_000 // 8  # Less than the calls of a client in a sanitized build.
TIMEOUT_S = 60
# MiB, repetitions, and the share of these bytes that may pass in either direction. The first bytes,
# which fill the buffers of sockets before the link is known to be slow, are sent as they are.
BOUNDS = {
    "zeros": (16, 1, 0.01),
    "numbers": (24, 1, 0.6),
    "random": (4, 1, 1.03),
    "mixed": (8, 2, 0.6),  # A little over a quarter is random.
}


def passed(server, command):
    """Bytes in both directions of a run that must succeed."""
    with tempfile.TemporaryDirectory() as folder:
        log = os.path.join(folder, "log")
        with world.DelayedLink(server.port(), ROUND_TRIP_S, LINK_BYTES_PER_S, log=log) as link:
            done = world.measured(server, command, link.address, TIMEOUT_S)
        if done.status != 0 or "PASSED" not in done.stdout:
            raise AssertionError(f"{command}: status {done.status}\n{done.stdout}{done.stderr}{server.log()}")
        sums = {"up": 0, "down": 0}
        with open(log, encoding="utf-8") as lines:
            for line in lines:
                event = json.loads(line)
                if event["what"] in sums:
                    sums[event["what"]] += event["bytes"]
    return sums


# The kind of calls, how many thousand, and the share of their records' bytes that is sent. The
# first ones, in the buffers of sockets, are sent as they are.
CALLS = {
    ("launches", "100"): (0.03, 0.6),
    ("copies", "2"): (1, 1),
    ("both", "50"): (0.5, 0.95),
}


def calls_over(server, command, **changes):
    """Bytes of a run's records, and the bytes in which they were sent. The run must succeed."""
    with world.DelayedLink(server.port(), ROUND_TRIP_S, CALLS_BYTES_PER_S) as link:
        done = world.measured(server, command, link.address, TIMEOUT_S, **changes)
    if done.status != 0 or "PASSED" not in done.stdout:
        raise AssertionError(f"{command}: status {done.status}\n{done.stdout}{done.stderr}{server.log()}")
    batches = done.statistics[0]["batches"]
    return batches["bytes"], batches["wire_bytes"]


def wrong_of_calls(image, program):
    with world.Gpurund(over="tcp") as server:
        for (what, thousands), (least, most) in CALLS.items():
            command = [program, image, what, thousands]
            records, wire = calls_over(server, command)
            print(f"{what}: {wire / records:.3f} of {records} bytes of calls", flush=True)
            if not least <= wire / records <= most:
                yield f"{what}: {wire / records:.3f} of the bytes of calls, not {least} to {most}"
        command = [program, image, "launches", "20"]
        records, wire = calls_over(server, command, GPURUN_PACKING="off")
        if wire != records:
            yield f"launches with GPURUN_PACKING=off: {wire} bytes for {records}"


def main():
    image, program, calls = sys.argv[1:4]
    wrong = []
    with world.Gpurund(over="tcp") as server:
        none = passed(server, [program, image, "zeros", "0"])  # All except the copies, with a known image.
        none = passed(server, [program, image, "zeros", "0"])
        for what, (mebibytes, times, share) in BOUNDS.items():
            sums = passed(server, [program, image, what, str(mebibytes)])
            copied = times * mebibytes << 20
            for way in ("up", "down"):
                found = (sums[way] - none[way]) / copied
                print(f"{what}, {mebibytes} MiB, {way}: {found:.3f} of the bytes", flush=True)
                if found > share:
                    wrong.append(f"{what} {way}: {found:.3f} of the bytes, more than {share}")
    wrong += wrong_of_calls(image, calls)
    if wrong:
        print("WRONG:", *wrong, sep="\n")
    return 1 if wrong else 0


sys.exit(main())
