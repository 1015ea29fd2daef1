"""Calls one by one: posted ones, fences, objects, copies; natively, through gpurun, under another command.

Rounds are interleaved. With "across" client and server stay on different cores, with "free" they run as
the scheduler likes; a bar is judged by the better of the two and by the best baseline of the group's rounds."""
import os

from bars import BARS, SHOWN_AGAIN, SLOW_LINK_BARS, TLS_BARS
from machine import Missing
from report import Row, best_of, median_of, rows_of
import world


def measured(machine, group, raw_words=(), bars=None, server_words=(), lanes=False):
    raw, rounds = [], {"native": [], "gpurun": []}
    servers = {placement: machine.server(*server_words, placement=placement)
               for placement in machine.placements}
    try:
        bulk_lanes = machine.lanes(servers["free"]) if lanes else 1
        if lanes:
            raw_words = [*raw_words, ("streams", *map(str, sorted({1, bulk_lanes})))]
        for _ in range(machine.rounds):
            for words in raw_words:
                placements = machine.placements if words[0] != "cipher" else ("free",)
                raw += [machine.raw(placement, *words) for placement in placements]
            rounds["native"].append(machine.native(group))
            for placement, server in servers.items():
                title = "gpurun" if placement == "free" else f"gpurun {placement}"
                rounds.setdefault(title, []).append(
                    machine.forwarded(server, group, placement=placement))
            if machine.under:
                rounds.setdefault("other", []).append(machine.other(group))
    finally:
        for server in servers.values():
            server.__exit__()
    best = best_of(raw)
    columns = {title: median_of(some) for title, some in rounds.items()}
    return rows_of(columns, best, BARS if bars is None else bars, bulk_lanes), best


def posted(machine):
    return measured(machine, "posted")


def fences(machine):
    rows, raw = measured(machine, "fences", [("ping",)])
    named = {row.name: row for row in rows}
    return [*rows, *(Row(name, named[of].unit, named[of].columns, raw).judge(bar)
                     for name, (of, bar) in SHOWN_AGAIN.items())], raw


def objects(machine):
    return measured(machine, "objects", [("ping",)])


def copies(machine):
    return measured(machine, "copies", [("ping",)], lanes=True)


def tls(machine):
    return measured(machine, "copies", [("ping",), ("cipher",)], TLS_BARS, ["--tls"], lanes=True)


LINK_BYTES_PER_S, LINK_ROUND_TRIP_S = 1_000_000_000 / 8, 0.001


def slow_link(machine):
    link = {"link": {"unit": "GB/s", "p50": LINK_BYTES_PER_S / 1e9, "p99": LINK_BYTES_PER_S / 1e9}}
    rounds = []
    with machine.server() as server:
        for _ in range(max(1, machine.rounds // 2)):
            with world.DelayedLink(server.port(), LINK_ROUND_TRIP_S, LINK_BYTES_PER_S) as between:
                rounds.append(machine.forwarded(server, "slow-link", address=between.address))
    return rows_of({"gpurun": median_of(rounds)}, link, SLOW_LINK_BARS), link


def lone(machine):
    if not os.path.exists(world.DRIVERS["emulated"]):
        raise Missing("the emulated device is not built here")
    rounds = {"native": [], "gpurun": []}
    with machine.server(driver="emulated") as server:
        for _ in range(machine.rounds):
            rounds["native"].append(machine.native("lone", driver="emulated"))
            rounds["gpurun"].append(machine.forwarded(server, "lone"))
    return rows_of({title: median_of(some) for title, some in rounds.items()}, {}, {}), {}
