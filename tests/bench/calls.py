"""Calls one by one: posted calls, fences, objects and copies, natively, through gpurun, and under
another command.

Rounds are interleaved. With "across" client and server stay on different cores, and with "free" the
scheduler places them. A bar is judged by the better of the two and by the best baseline of the
group's rounds."""
import itertools
import json
import os
import statistics

from bars import BARS, SHM_BARS, SHM_COPY_BARS, SHOWN_AGAIN, SLOW_LINK_BARS, TLS_BARS
from machine import Missing
from report import Row, best_of, median_of, rows_of
import world


class Connections:
    """Numbers of connections that the copies of the measured sessions used, from their statistics.
    A session begins with one connection, tries more and keeps what is faster, separately for each
    direction (docs/adr/0035). A bar compares with raw streams of as many connections as any session
    had at any time in the copy's direction."""

    STATISTICS = {"in": "bulk_connections", "out": "bulk_connections_out"}
    MOMENTS = {"in the end": "", "at most": "_most"}

    def __init__(self):
        self.counted = {}  # (direction, moment) -> {title: its sessions' numbers}
        self.streams = {1: 0}  # How often the raw stream of each number was measured.

    def add(self, title, statistics_of_one):
        for (way, key), (moment, suffix) in itertools.product(self.STATISTICS.items(), self.MOMENTS.items()):
            number = statistics_of_one[key + suffix]
            self.counted.setdefault((way, moment), {}).setdefault(title, []).append(number)
            self.streams.setdefault(number, 0)

    def lanes(self, name):
        """The numbers for the direction of the row `name`."""
        direction = "out" if name.startswith("copy out") else "in"
        return tuple(sorted({1}.union(*(numbers for (way, _), titles in self.counted.items() if way == direction
                                        for numbers in titles.values()))))

    def raw(self, machine, rounds):
        """Raw streams of all numbers that occurred. Each has the same number of rounds, even when
        it occurred late."""
        raw = []
        while numbers := sorted(number for number, done in self.streams.items() if done < rounds):
            raw += [machine.raw(placement, "streams", *map(str, numbers)) for placement in machine.placements]
            for number in numbers:
                self.streams[number] += 1
        return raw

    def rows(self):
        for (way, moment), titles in self.counted.items():
            yield Row(f"connections of copies {way}, {moment}", "", {
                title: {"p50": statistics.median(some), "p99": max(some)} for title, some in titles.items()})


def measured(machine, group, raw_words=(), bars=None, server_words=(), copies_of=None, **changes):
    """`copies_of`: for a group of copies, the Connections to fill. `changes`: changes to the
    client's environment."""
    raw, rounds = [], {"native": [], "gpurun": []}
    servers = {placement: machine.server(*server_words, placement=placement)
               for placement in machine.placements}
    try:
        for done in range(machine.rounds):
            for words in raw_words:
                placements = machine.placements if words[0] != "cipher" else ("free",)
                raw += [machine.raw(placement, *words) for placement in placements]
            rounds["native"].append(machine.native(group))
            for placement, server in servers.items():
                title = "gpurun" if placement == "free" else f"gpurun {placement}"
                rounds.setdefault(title, []).append(
                    forwarded(machine, server, group, placement, title, copies_of, changes))
            if copies_of is not None:
                raw += copies_of.raw(machine, done + 1)
            if machine.under:
                rounds.setdefault("other", []).append(machine.other(group))
    finally:
        for server in servers.values():
            server.__exit__()
    best = best_of(raw)
    columns = {title: median_of(some) for title, some in rounds.items()}
    lanes = {} if copies_of is None else {"lanes": copies_of.lanes}
    rows = rows_of(columns, best, BARS if bars is None else bars, **lanes)
    return [*rows, *(copies_of.rows() if copies_of is not None else ())], best


def forwarded(machine, server, group, placement, title, copies_of, changes):
    if copies_of is None:
        return machine.forwarded(server, group, placement=placement, **changes)
    said, counted = machine.counted(server, machine.words(group), placement=placement, **changes)
    copies_of.add(title, counted)
    return json.loads(said)


def posted(machine):
    return measured(machine, "posted")


def fences(machine):
    rows, raw = measured(machine, "fences", [("ping",)])
    named = {row.name: row for row in rows}
    return [*rows, *(Row(name, named[of].unit, named[of].columns, raw).judge(bar)
                     for name, (of, bar) in SHOWN_AGAIN.items())], raw


SHM = {"GPURUN_TRANSPORTS": "shm"}


def shm_posted(machine):
    return measured(machine, "posted", **SHM)


def shm_waits(machine):
    return measured(machine, "fences", [("memory",)], SHM_BARS, **SHM)


def shm_copies(machine):
    return measured(machine, "copies", [("memory",)], SHM_COPY_BARS, **SHM)


def objects(machine):
    return measured(machine, "objects", [("ping",)])


def copies(machine):
    return measured(machine, "copies", [("ping",)], copies_of=Connections())


def tls(machine):
    return measured(machine, "copies", [("ping",), ("cipher",)], TLS_BARS, ["--tls"], Connections())


BUSY_US = (5, 25)  # As a small kernel and a middling one keep a GPU busy.
BEHIND = ("launch + stream synchronise", "launch + context synchronise")


def behind_kernels(machine):
    """Waits on a null device that each kernel keeps busy for a while. Measures the overhead beyond
    the kernel."""
    if machine.driver != "null":
        raise Missing("only the null device's kernels take as long as they are told")
    rows = []
    for busy_us in BUSY_US:
        changes = {"GPURUN_EMULATED": f"kernel-us={busy_us}"}
        rounds = {"native": [], **{title: [] for title in ("gpurun", "gpurun across")[:len(machine.placements)]}}
        for title, placement in zip(list(rounds)[1:], machine.placements):
            with machine.server(placement=placement, **changes) as server:
                for _ in range(machine.rounds):
                    rounds[title].append(machine.forwarded(server, "fences", placement=placement))
        rounds["native"] = [machine.native("fences", **changes) for _ in range(machine.rounds)]
        medians = {title: median_of(some) for title, some in rounds.items()}
        rows += [Row(f"{name}, kernel of {busy_us} us", medians["native"][name]["unit"],
                     {title: {key: found[name][key] for key in ("p50", "p99")} for title, found in medians.items()})
                 for name in BEHIND]
    return rows, {}


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
