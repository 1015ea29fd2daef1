"""Kernels on the emulated device itself, each beside the same work as a plain loop nest of one
thread (tests/bench/emulated). The best round of each counts, because the nest has the machine's
other core to itself."""
import json
import os
import subprocess

from bars import Bar
from machine import Missing
from report import Row, one
import world

KERNELS = os.path.join(world.ARGS.build, "programs/emulated_kernels_bench")
MEMORY_SPEED = 1.25  # Of the nest's time, which is memory time where the nest only adds.
PLAIN = "plain C++"
TIMES_MAX = {
    "vectorAdd, 4 Mi": MEMORY_SPEED,
    "saxpy, grid stride, 4 Mi": 3,
    "matmul 512, naive": 5,
    "matmul 512, tiles of 16": 5,
    "matmul 512, tiles of 32": 5,
    "sums by shuffles, 4 Mi": 3,
    "scans by barriers, 4 Mi": 3,
    "histogram, shared, 4 Mi": 3,
}
LAUNCHES_MIN = 1e6


def of_plain(times):
    def judge(row):
        found = row.columns["native"]["p50"] / row.columns[PLAIN]["p50"]
        return f"{found:.2f} of {times:g} times the loop nest", found <= times
    return Bar(judge)


def launches_bar(row):
    return f">= {LAUNCHES_MIN:,.0f}", row.columns["native"]["p50"] >= LAUNCHES_MIN


def measure(machine):
    if not os.path.exists(KERNELS):
        raise Missing("the kernels are not built here: they need nvcc and the emulated device")
    rounds = []
    for _ in range(machine.rounds):
        # A wrong result ends the program with an error.
        done = subprocess.run([KERNELS, "--json"], env=machine.native_environment("emulated"), check=True,
                              stdin=subprocess.DEVNULL, capture_output=True, timeout=300)
        rounds.append(json.loads(done.stdout))
    rows = [Row(name, "ms", {"native": one(min(each[name]["device_ms"] for each in rounds)),
                             PLAIN: one(min(each[name]["plain_ms"] for each in rounds))}).judge(of_plain(times))
            for name, times in TIMES_MAX.items()]
    rate = 1e6 * max(each["empty launches"]["millions_per_s"] for each in rounds)
    rows.append(Row("empty launches a second", "1/s", {"native": one(rate)}).judge(Bar(launches_bar)))
    return rows, {}
