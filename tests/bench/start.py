"""Start-up: time and sequential round trips from the client's first call to its first kernel's
result. gpurun's own link and the whole process are reported apart.

Warm: client and server know the module. Cold: neither has seen it before. Times at 0 ms are taken
on loopback itself. Round trips are counted where the wire takes 30 ms (chain.py). In the bars a
round trip takes as long as a bare ping-pong over such a link in the same run. The row also shows
whether the bar with the nominal delay is met. Loopback has more starts in a round, because their
times differ by half."""
import itertools
import os
import statistics
import tempfile
import time

from bars import at_most
import chain
from links import bounded, raw_links
from machine import forwarded_environment, run_json
from report import Row, one
import world

ROUND_TRIPS_MS = (0, 1, 10, 30)
COUNTED_AT_MS = 30
OWN_MS, OWN_PROCESS_MS = 5, 40  # On top of the round trips.
CONTROL_MAX = 3
PROCESS_MAX = {("plaintext", "warm"): 6, ("plaintext", "cold"): 7, ("TLS", "warm"): 7, ("TLS", "cold"): 8}
HAND_OVER_MS = 2
ON_LOOPBACK = 5  # Starts in a round.
SALT = itertools.count()


def start_max(mode, kind):
    return 3 + (mode == "TLS") + (kind == "cold")


class Started:
    """One run of the small program."""

    def __init__(self, machine, server, kind, round_trip_ms):
        salt = f"{os.getpid()} {time.monotonic_ns()} {next(SALT)}" if kind == "cold" else "warm"
        command = machine.words("start", salt)
        with tempfile.TemporaryDirectory() as folder:
            log = os.path.join(folder, "log")
            if round_trip_ms == 0:
                self.measure(machine, server, command, server.address)
                return
            with world.DelayedLink(server.port(), round_trip_ms / 1000, log=log) as link:
                said = self.measure(machine, server, command, link.address)
            events = chain.read(log)
        begin, result = (said[name]["p50"] for name in ("first call", "first result"))
        control = chain.opened(events, before=begin)
        own = chain.opened(events, since=begin)
        self.control_trips = chain.round_trips(events, control, begin)
        self.trips = chain.round_trips(events, own, result)
        self.process_trips = chain.round_trips(events, control | own)
        self.hand_over_ms = chain.hand_over_ns(events, own) / 1e6

    def measure(self, machine, server, command, address):
        begin = time.monotonic()
        said = run_json(machine.gpurun(server, command, address), forwarded_environment(server))
        self.process_ms = 1000 * (time.monotonic() - begin)
        self.start_ms = said["start"]["p50"] / 1e6
        return said


def median(runs, name):
    values = [getattr(run, name) for run in runs]
    return {"p50": statistics.median(values), "p99": max(values)}


def times(runs, name, delay):
    """Over a link the shortest time counts, because other load on the machine only adds to it."""
    return median(runs, name) if delay == 0 else one(min(getattr(run, name) for run in runs))


def delays_of(machine):
    # A quick run measures no times that matter, only counts.
    return (0, COUNTED_AT_MS) if machine.quick else ROUND_TRIPS_MS


def started(machine, server, kind, delay):
    """The spare worker that replaces the last one is ready, which takes a moment."""
    world.until(server.spares, "a worker waits")
    return Started(machine, server, kind, delay)


def rows_of(machine, server, mode, raw):
    runs = {}
    Started(machine, server, "warm", 0)  # From now on it is warm.
    delays = delays_of(machine)
    for _ in range(machine.rounds):
        for kind, delay in itertools.product(("warm", "cold"), delays):
            for _ in range(ON_LOOPBACK if delay == 0 and not machine.quick else 1):
                runs.setdefault((kind, delay), []).append(started(machine, server, kind, delay))
    for kind in ("warm", "cold"):
        counted = runs[kind, COUNTED_AT_MS]
        yield (f"{kind}, {mode}: round trips, one after the other", "", median(counted, "trips"),
               at_most(start_max(mode, kind), "round trips"))
        for delay in delays:
            yield (f"{kind}, {mode}: time at {delay} ms RTT", "ms",
                   times(runs[kind, delay], "start_ms", delay),
                   bounded(OWN_MS, start_max(mode, kind), delay, raw))
        yield (f"{kind}, {mode}: whole process, round trips", "", median(counted, "process_trips"),
               at_most(PROCESS_MAX[mode, kind], "round trips"))
        for delay in delays:
            yield (f"{kind}, {mode}: whole process at {delay} ms RTT", "ms",
                   times(runs[kind, delay], "process_ms", delay),
                   bounded(OWN_PROCESS_MS, PROCESS_MAX[mode, kind], delay, raw))
    warm = runs["warm", COUNTED_AT_MS]
    yield (f"gpurun's own link, {mode}: round trips before the program", "", median(warm, "control_trips"),
           at_most(CONTROL_MAX, "round trips"))
    yield (f"hand-over to a worker, {mode}", "ms", median(warm, "hand_over_ms"),
           at_most(HAND_OVER_MS, "ms"))


def measure(machine):
    rows, raw = [], raw_links(delays_of(machine)[1:])
    for mode, words in (("plaintext", ()), ("TLS", ("--tls",))):
        with machine.server(*words) as server:
            rows += [Row(name, unit, {"gpurun": values}).judge(bar)
                     for name, unit, values, bar in rows_of(machine, server, mode, raw)]
    locally = [machine.native("start", "warm")["start"]["p50"] / 1e6 for _ in range(machine.rounds)]
    rows.append(Row("natively: time", "ms", {"native": one(statistics.median(locally))}))
    if machine.under:
        other = [machine.other("start", "warm")["start"]["p50"] / 1e6 for _ in range(machine.rounds)]
        rows.append(Row("under the other command: time", "ms", {"other": one(statistics.median(other))}))
    return rows, raw
