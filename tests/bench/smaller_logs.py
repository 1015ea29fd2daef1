"""Smaller logs: encodings of the records of calls in fewer bytes, on recorded logs. For each: the
bytes saved, the cost at either end, and the link speed below which it is faster."""
import os
import statistics
import tempfile

import loops
import recorded_log
from machine import forwarded_environment, run, run_json
from report import Row, one
from sequences import LINK_ROUND_TRIP_S, LINKS
import world

LOG_SIZES = os.path.join(world.ARGS.build, "bench/log_sizes")
PASSES = 15
WAYS = ("LZ4", "zstd 1", "delta")
WHOLE = {"GPURUN_PACKING": "off"}
EPOCHS = 20  # So that sample_mnist's start is a small part of its log.
LAUNCH_NS = 2000  # The least time of a launch in native CUDA.


def measure(machine):
    logs = [("loop", machine.words("loop"), (0,))]
    if os.path.exists(loops.TRAINING):
        logs.append(("mnist", loops.training(0, 1 if machine.quick else EPOCHS), (0, 1)))
    rows, ratio = [], {}
    with machine.server() as server, tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "log")
        for name, command, statuses in logs:
            for _ in range(2):  # In the first run the server does not have the image yet.
                recorded_log.record(machine, server, command, path, statuses)
            passes = machine.rounds if machine.quick else PASSES
            measured = run_json([LOG_SIZES, path, str(passes)], dict(os.environ))
            rows += rows_of(name, measured)
            ratio[name] = bytes_of("whole", measured) / bytes_of("delta", measured)
        rows += over_links(machine, server, ratio)
    return rows, {}


def bytes_of(way, measured):
    return measured[f"{way}: bytes of a record"]["p50"]


def over_links(machine, server, ratio):
    """Gain from fewer bytes. Records are sent as usual (packed on a link that is measured as slow),
    and whole. They are also sent whole over a link that is faster by the delta's ratio, without the
    delta's own time. Medians of rounds in turn."""
    for link, bytes_per_s in LINKS:
        for log, unit, what, run_over in (("loop", "1/s", "launches a second", loop_over),
                                          ("mnist", "ms", "a step, reads each", training_over)):
            ways = {"as it goes": (1, {}), "whole": (1, WHOLE)}
            if log in ratio:
                ways["as if delta"] = (ratio[log], WHOLE)
            taken = {how: [] for how in ways}
            for _ in range(machine.rounds):
                for how, (times, changes) in ways.items():
                    with world.DelayedLink(server.port(), LINK_ROUND_TRIP_S, bytes_per_s * times) as between:
                        taken[how].append(run_over(machine, server, between.address, changes))
            for how, values in taken.items():
                yield Row(f"{log}, {what}, {link}, {how}", unit, {"gpurun": summary(values)})


def summary(values):
    return {"p50": statistics.median(values), "p99": max(values)}


def loop_over(machine, server, address, changes):
    return machine.forwarded(server, "loop", address=address, **changes)["launches a second"]["p50"]


def training_over(machine, server, address, changes):
    said = run(machine.gpurun(server, loops.training(1), address), forwarded_environment(server, **changes),
               statuses=(0, 1))
    return loops.loop_ms(said) / (loops.EPOCHS * loops.steps_of_epoch(said))


def rows_of(log, measured):
    def row(name, unit, value):
        return Row(f"{log}, {name}", unit, {"gpurun": value})

    def number(name):
        return measured[name]["p50"]

    yield row("records", "", one(number("records")))
    yield row("bytes of a frame", "", one(number("bytes of a frame")))
    whole = number("whole: bytes of a record")
    for way in ("whole", *WAYS):
        yield row(f"{way}: bytes of a record", "", one(number(f"{way}: bytes of a record")))
        for end in ("to encode a record", "to decode it"):
            values = measured[f"{way}: {end}"]
            yield row(f"{way}: {end}", "ns", {key: values[key] for key in ("p50", "p99")})
        if way == "whole":
            continue
        saved = max(0.0, whole - number(f"{way}: bytes of a record"))
        ends = [number(f"{way}: {end}") for end in ("to encode a record", "to decode it")]
        yield row(f"{way}: wins below, an end each", "Gbit/s", one(8 * saved / max(ends)))
        yield row(f"{way}: wins below, ends on one core", "Gbit/s", one(8 * saved / sum(ends)))
    for way in ("whole", *WAYS):
        yield row(f"{way}: a record each {LAUNCH_NS / 1000:g} us fills", "Gbit/s",
                  one(8 * number(f"{way}: bytes of a record") / LAUNCH_NS))
