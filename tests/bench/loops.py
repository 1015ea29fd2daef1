"""Loops that read results: each shall cost one wait for the network, whatever was launched between.

Of the rounds the least time counts: a machine that is busy with other things only adds to it. What such a
link takes for a bare ping-pong stands beside it, and in each bar whether the link's nominal delay would do."""
import contextlib
import os
import re

from bars import at_most
from links import bounded, raw_links
from machine import Missing, forwarded_environment, run
from report import Row, one
import start
import world

DELAYS_MS = (1, 10, 30)
MORE_MS = 3  # Beside the local time and the round trips.
RESULTS, LAUNCHES = 10, 100
TRAINING = os.path.join(world.ARGS.build, "programs/sample_mnist")
EPOCHS, BATCH = 3, 128


def trips_of(machine, server, command, statuses=(0,), address=None, **changes):
    """The statistics of a run, and what it printed."""
    said, statistics = machine.counted(server, command, address, statuses=statuses, **changes)
    return statistics, said


def trips_over_link(machine, server, command, **words):
    """Over the longest wire, where who waits for what is not there yet does so: loopback is too short for it."""
    with world.DelayedLink(server.port(), delays(machine)[-1] / 1000) as link:
        return trips_of(machine, server, command, address=link.address, **words)


def delays(machine):
    return DELAYS_MS[:1] if machine.quick else DELAYS_MS


def steady(machine):
    """Two forms: a copy that waits, and one that does not with a synchronise behind it."""
    rows, raw = [], raw_links(delays(machine))
    with machine.server() as server:
        for form, what in (((), "copy"), (("async",), "async copy + synchronise")):
            rows += steady_rows(machine, server, form, what, raw)
    return rows, raw


def counted_rows(what, counted, less, more_results, results):
    """Round trips of what the longer run reads more; waits for own events of all of it, for they differ from run
    to run: a shorter one that waits more often must not hide them."""
    key = "blocking_round_trips"
    for name, each, most in (("round trips", (counted[key] - less[key]) / more_results, 1),
                             ("waits for own events", counted["completion_waits"] / results, 0)):
        yield Row(f"{what}: {name} for each result", "", {"gpurun": one(each)}).judge(at_most(most, ""))


def steady_rows(machine, server, form, what, raw):
    words = ("steady", RESULTS, LAUNCHES, *form)
    local = min(machine.native(*words)["loop"]["p50"] / 1e6 for _ in range(machine.rounds))
    trips_of(machine, server, machine.words("steady", 1, 1))  # The server has the image.
    few, many = (trips_over_link(machine, server, machine.words("steady", results, LAUNCHES, *form))[0]
                 for results in (RESULTS, 3 * RESULTS))
    yield from counted_rows(what, many, few, 2 * RESULTS, 3 * RESULTS)
    times = {delay: [] for delay in (0, *delays(machine))}
    for _ in range(machine.rounds):
        for delay, taken in times.items():
            with (contextlib.nullcontext(server) if delay == 0 else
                  world.DelayedLink(server.port(), delay / 1000)) as link:
                taken.append(machine.forwarded(server, *words, address=link.address)["loop"]["p50"] / 1e6)
    for delay, taken in times.items():
        yield Row(f"{what}: {RESULTS} results, {delay} ms RTT", "ms",
                  {"native": one(local), "gpurun": one(min(taken))}).judge(
                      bounded(local + MORE_MS, RESULTS, delay, raw))
    if machine.under:
        other = [machine.other(*words)["loop"]["p50"] / 1e6 for _ in range(machine.rounds)]
        yield Row(f"{what}: under the other command", "ms", {"other": one(min(other))})


def training(every, epochs=EPOCHS):
    # On the null device nothing is learnt, which the program's status says.
    return [TRAINING, "--epochs", str(epochs), "--batch", str(BATCH), "--report", str(every),
            "--accuracy-bar", "0"]


def steps_of_epoch(said):
    return int(re.search(r"^digits: (\d+) to train", said, re.M).group(1)) // BATCH


def loop_ms(said, epochs=EPOCHS):
    """Of sample_mnist's loop, by the images a second that it prints."""
    rate = float(re.search(r"^([0-9]+) images/s", said, re.M).group(1))
    return 1000 * epochs * steps_of_epoch(said) * BATCH / rate


def mnist(machine):
    """Its start-up, and its loop in two forms: it reads the loss of every step, or of every epoch. Before a
    step it waits for the upload of two steps ago: that is no result, and may last a round trip."""
    if not os.path.exists(TRAINING):
        raise Missing("sample_mnist is not built here: it needs nvcc")
    rows, raw = [], raw_links(delays(machine))
    for mode, words in (("plaintext", ()), ("TLS", ("--tls",))):
        with machine.server(*words) as server:
            for kind in ("cold", "warm"):
                trips = world.start_trips(lambda traces: trips_of(
                    machine, server, training(0, epochs=1), statuses=(0, 1), GPURUN_TRACE=traces)[0])
                rows.append(Row(f"start-up, {kind}, {mode}: round trips", "", {"gpurun": one(trips)})
                            .judge(at_most(start.start_max(mode, kind), "")))
    with machine.server() as server:
        trips_of(machine, server, training(0, epochs=1), statuses=(0, 1))  # The server has the image.
        for every, what in ((1, "reads each step"), (0, "reads each epoch")):
            rows += loop_rows(machine, server, every, what, raw)
    return rows, raw


def loop_rows(machine, server, every, what, raw):
    counted, said = trips_over_link(machine, server, training(every), statuses=(0, 1))
    less, _ = trips_over_link(machine, server, training(every, epochs=1), statuses=(0, 1))
    results = len(re.findall(r"^epoch \d+ step", said, re.M)) + EPOCHS
    more = results * (EPOCHS - 1) / EPOCHS  # What the further epochs read.
    yield from counted_rows(what, counted, less, more, results)

    times = {delay: [] for delay in (0, *delays(machine))}
    for _ in range(machine.rounds):
        for delay, taken in times.items():
            with (contextlib.nullcontext(server) if delay == 0 else
                  world.DelayedLink(server.port(), delay / 1000)) as link:
                command = machine.gpurun(server, training(every), link.address)
                taken.append(loop_ms(run(command, forwarded_environment(server), statuses=(0, 1))))
    # NVIDIA's runtime does not start on the null device itself: local is what loopback makes of it.
    local = min(times.pop(0))
    yield Row(f"{what}: {results} results, loopback", "ms", {"gpurun": one(local)})
    for delay, taken in times.items():
        yield Row(f"{what}: {results} results, {delay} ms RTT", "ms", {"gpurun": one(min(taken))}).judge(
            bounded(local + MORE_MS, results, delay, raw))
