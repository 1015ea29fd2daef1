"""Loops that read results: each result costs one wait for the network, however many launches come
before it.

The shortest time of the rounds counts, because a busy machine only adds to it. The time of a bare
ping-pong over such a link is shown beside it. Each bar also shows whether the link's nominal delay
would be enough."""
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
MORE_MS = 3  # On top of the local time and the round trips.
RESULTS, LAUNCHES = 10, 100
TRAINING = os.path.join(world.ARGS.build, "programs/sample_mnist")
EPOCHS, BATCH = 3, 128


def trips_of(machine, server, command, statuses=(0,), address=None, **changes):
    """Returns the statistics of a run, and its output."""
    said, statistics = machine.counted(server, command, address, statuses=statuses, **changes)
    return statistics, said


def trips_over_link(machine, server, command, **words):
    """Runs over the longest wire. There a thread that waits for a missing result really blocks,
    while loopback is too fast for that."""
    with world.DelayedLink(server.port(), delays(machine)[-1] / 1000) as link:
        return trips_of(machine, server, command, address=link.address, **words)


def delays(machine):
    return DELAYS_MS[:1] if machine.quick else DELAYS_MS


def steady(machine):
    """Two forms: a copy that waits, and an asynchronous copy with a synchronise after it."""
    rows, raw = [], raw_links(delays(machine))
    with machine.server() as server:
        for form, what in (((), "copy"), (("async",), "async copy + synchronise")):
            rows += steady_rows(machine, server, form, what, raw)
    return rows, raw


def counted_rows(what, counted, less, more_results, results):
    """Round trips for each further result of the longer run. Waits for own events are counted over
    the whole longer run, because they vary from run to run, and a shorter run with more waits must
    not hide them."""
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
    # Kernels do nothing on the null device, so training fails, and the program's status says so.
    return [TRAINING, "--epochs", str(epochs), "--batch", str(BATCH), "--report", str(every),
            "--accuracy-bar", "0"]


def steps_of_epoch(said):
    return int(re.search(r"^digits: (\d+) to train", said, re.M).group(1)) // BATCH


def loop_ms(said, epochs=EPOCHS):
    """Milliseconds of sample_mnist's loop, from the images a second that it prints."""
    rate = float(re.search(r"^([0-9]+) images/s", said, re.M).group(1))
    return 1000 * epochs * steps_of_epoch(said) * BATCH / rate


def mnist(machine):
    """Its start-up, and its loop in two forms, which read the loss of every step or of every epoch.
    Before a step it waits for the upload of two steps ago. That wait reads no result, and may take
    a round trip."""
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
    more = results * (EPOCHS - 1) / EPOCHS  # Results of the further epochs.
    yield from counted_rows(what, counted, less, more, results)

    times = {delay: [] for delay in (0, *delays(machine))}
    for _ in range(machine.rounds):
        for delay, taken in times.items():
            with (contextlib.nullcontext(server) if delay == 0 else
                  world.DelayedLink(server.port(), delay / 1000)) as link:
                command = machine.gpurun(server, training(every), link.address)
                taken.append(loop_ms(run(command, forwarded_environment(server), statuses=(0, 1))))
    # NVIDIA's runtime does not start on the null device itself, so loopback is the local time.
    local = min(times.pop(0))
    yield Row(f"{what}: {results} results, loopback", "ms", {"gpurun": one(local)})
    for delay, taken in times.items():
        yield Row(f"{what}: {results} results, {delay} ms RTT", "ms", {"gpurun": one(min(taken))}).judge(
            bounded(local + MORE_MS, results, delay, raw))
