"""Upper bound of the gain from sending a repeated sequence of calls in fewer bytes: the whole cost
of these bytes."""
import os

import loops
from machine import Missing
from report import Row, median_of, one
import world

SMALL, LARGE = 64, 2048  # Bytes of parameters.
LINKS = (("1 Gbit/s", 125e6), ("100 Mbit/s", 12.5e6))
LINK_ROUND_TRIP_S = 0.001


def launches(of):
    return f"launches a second, {of} bytes of parameters"


def measure(machine):
    if not os.path.exists(loops.TRAINING):
        raise Missing("sample_mnist is not built here: it needs nvcc")
    with machine.server() as server:
        counted, _ = loops.trips_of(machine, server, machine.words("sizes"))
        launch, = (each for each in counted["functions"] if each["name"] == "cuLaunchKernel")
        rounds = {"loopback": []}
        for _ in range(machine.rounds):
            rounds["loopback"].append(machine.forwarded(server, "sizes", GPURUN_PACKING="off"))
            for name, bytes_per_s in LINKS:
                with world.DelayedLink(server.port(), LINK_ROUND_TRIP_S, bytes_per_s) as link:
                    rounds.setdefault(name, []).append(machine.forwarded(
                        server, "sizes", address=link.address, GPURUN_PACKING="off"))
        rows = {name: median_of(some) for name, some in rounds.items()}
        loops.trips_of(machine, server, loops.training(0, epochs=1), statuses=(0, 1))  # The server has the image.
        training = {name: loops.trips_of(machine, server, loops.training(0, epochs), statuses=(0, 1))
                    for name, epochs in (("first", 1), ("all", loops.EPOCHS))}
    return [*of_launches(rows, launch), *of_training(training)], {}


def of_launches(rows, launch):
    for name, some in rows.items():
        for row, values in some.items():
            yield Row(f"{row}, {name}", values["unit"], {"gpurun": {key: values[key] for key in ("p50", "p99")}})
    nanoseconds = {of: 1e9 / rows["loopback"][launches(of)]["p50"] for of in (SMALL, LARGE)}
    byte = max(0.0, (nanoseconds[LARGE] - nanoseconds[SMALL]) / (LARGE - SMALL))
    # For all four sizes. A record grows by as much as its parameters.
    record = launch["record_bytes"] / launch["calls"] - sum((8, SMALL, 512, LARGE)) / 4 + SMALL
    yield Row(f"bytes of a launch with {SMALL} bytes of parameters", "", {"gpurun": one(record)})
    yield Row("a byte of it costs, loopback", "ns", {"gpurun": one(byte)})
    yield Row("all of them, of the launch's time, loopback", "%",
              {"gpurun": one(100 * byte * record / nanoseconds[SMALL])})


def of_training(training):
    """The cost of sample_mnist's further epochs. Each of their steps makes the same calls."""
    (first, _), (whole, said) = training["first"], training["all"]
    steps = (loops.EPOCHS - 1) * loops.steps_of_epoch(said)
    records, copies = (
        (sum(function[key] for function in whole["functions"])
         - sum(function[key] for function in first["functions"])) / steps
        for key in ("record_bytes", "sent_bytes"))
    yield Row("sample_mnist: bytes of calls in a step", "", {"gpurun": one(records)})
    yield Row("sample_mnist: bytes of copies in a step", "", {"gpurun": one(copies)})
    step_ms = loops.loop_ms(said) / (loops.EPOCHS * loops.steps_of_epoch(said))
    yield Row("sample_mnist: a step, loopback", "ms", {"gpurun": one(step_ms)})
    for name, bytes_per_s in LINKS:
        yield Row(f"sample_mnist: the bytes of its calls in a step, {name}", "ms",
                  {"gpurun": one(1000 * records / bytes_per_s)})
