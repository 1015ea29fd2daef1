#!/usr/bin/env python3
"""Protects: a program waits for the network as often as it reads a result, starting costs few round
trips, and --stats says the truth about both.

Runs with round-trip times of 0, 20 and 40 ms on the wire; the slope of the time over the
round-trip time is the number of round trips that were really waited for.
"""
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import world  # noqa: E402

STEPS, READS = 10, 1
STARTUP_MAX = 10
CONTROL_MAX = 4  # gpurun's link: connect, hello, lease; and giving the lease back.
KERNELS = (2, 200)
TOLERANCE = 0.2
DELAYS_S = (0.0, 0.020, 0.040)
# A machine that is busy with other things adds milliseconds to each run, which count for less on a
# longer wire.
LONGER_DELAYS_S = (0.0, 0.100, 0.200)
ROUNDS_MAX = 4


def slope(pairs):
    points = list(pairs)
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    return (sum((x - mean_x) * (y - mean_y) for x, y in points) /
            sum((x - mean_x) ** 2 for x, _ in points))


class Measurement:
    """The best times so far per delay, of the loop and of the whole run. A loaded machine can only
    make a run longer, so the least of several runs is nearest to what the wire costs."""

    def __init__(self, delays):
        self.loop = dict.fromkeys(delays, float("inf"))
        self.whole = dict.fromkeys(delays, float("inf"))
        self.link = dict.fromkeys(delays, float("inf"))  # gpurun alone, of a program without CUDA.
        self.statistics = None

    def one_round(self, server, command):
        for delay in self.loop:
            with world.DelayedLink(server.port(), delay) as proxy:
                done = world.measured(server, command, proxy.address)
                alone = world.measured(server, ["true"], proxy.address)
            if done.status != 0 or len(done.statistics) != 1:
                sys.exit(f"WRONG: status {done.status}, {len(done.statistics)} statistics\n"
                         f"{done.stdout}{done.stderr}{server.log()}")
            self.statistics = done.statistics[0]
            took = float(re.search(r"took ([0-9.]+) ms", done.stdout).group(1)) / 1000
            self.loop[delay] = min(self.loop[delay], took)
            self.whole[delay] = min(self.whole[delay], done.seconds)
            self.link[delay] = min(self.link[delay], alone.seconds)

    def complaints(self):
        results = STEPS * READS + 1  # In the loop; the first step, before it, reads one more.
        printed = self.statistics["blocking_round_trips"]
        in_loop, in_all = slope(self.loop.items()), slope(self.whole.items())
        # gpurun's own link is no part of the process's statistics.
        control = slope(self.link.items())
        print(f"loop: {in_loop:.2f} round trips for {results} results read; whole run: {in_all:.2f}, "
              f"printed {printed} ({self.statistics['attach_round_trips']} of them to attach), "
              f"{control:.2f} for gpurun's own link")
        if abs(in_loop - results) > TOLERANCE:
            yield f"the loop waited for {in_loop:.2f} round trips, not {results}"
        if printed - results > STARTUP_MAX:
            yield f"start-up took {printed - results} round trips, more than {STARTUP_MAX}"
        if abs(in_all - control - printed) > TOLERANCE:
            yield f"{in_all:.2f} in all less {control:.2f} for gpurun's link are not {printed}"
        if control > CONTROL_MAX + TOLERANCE:
            yield f"gpurun's own link takes {control:.2f} round trips, more than {CONTROL_MAX}"


def measure(server, command, delays):
    """A measurement that satisfied, or the last of several, and what is wrong with it."""
    measurement = Measurement(delays)
    for _ in range(ROUNDS_MAX):
        measurement.one_round(server, command)
        wrong = list(measurement.complaints())
        if not wrong:
            break
    return measurement, wrong


def training_complaints(program, driver):
    """A real training loop with two batches in flight: it waits for each upload of two steps ago,
    which the worker tells unasked, and reads the loss of every step or of every epoch. What two
    epochs cost more than one is the steady loop's."""
    with world.Gpurund(driver=world.DRIVERS[driver]) as server:
        world.measured(server, [program, "--epochs", "1"])  # The server has the image.
        for every in (1, 0):
            runs, reads = [], []
            for epochs in (1, 2):
                # On the null device nothing is learnt, and it says so with its status.
                done = world.measured(server, [program, "--epochs", str(epochs), "--report",
                                                 str(every), "--accuracy-bar", "0"])
                if done.status not in (0, 1) or len(done.statistics) != 1:
                    sys.exit(f"WRONG: {driver}: status {done.status}\n{done.stdout}{done.stderr}"
                             f"{server.log()}")
                runs.append(done.statistics[0])
                reads.append(len(re.findall(r"^epoch \d+ step", done.stdout, re.M)) + epochs)
            more = reads[1] - reads[0]
            trips, waits = (runs[1][key] - runs[0][key]
                            for key in ("blocking_round_trips", "completion_waits"))
            print(f"sample_mnist, {driver} device: one more epoch reads {more} results, takes {trips} "
                  f"blocking round trips and waits {waits} times for an upload's end")
            if trips != more:
                yield f"{driver} device: {trips} round trips for {more} results read"
            # Whoever reads the result of each step finds the uploads before it complete: on a
            # device that is done at once they are told before the result is.
            if driver == "null" and every == 1 and waits > more / 10:
                yield f"{waits} waits for uploads that were complete"


def startup_complaints(server, many_kernels, many_units):
    """What a run costs whose only result is its last: cold (neither end knows the program), warm,
    with a server that has lost the images, and without the client's cache."""
    programs = [[many_kernels, str(kernels)] for kernels in KERNELS] + [[many_units]]

    def trips(on, program, **changes):
        done = world.measured(on, program, **changes)
        if done.status != 0 or len(done.statistics) != 1:
            sys.exit(f"WRONG: {program}: status {done.status}\n{done.stdout}{done.stderr}{on.log()}")
        return done.statistics[0]["blocking_round_trips"]

    cold = [trips(server, program) for program in programs]
    warm = [trips(server, program) for program in programs]
    kept = world.client_environment(server)["XDG_CACHE_HOME"]
    with world.Gpurund() as fresh:
        lost = [trips(fresh, program, XDG_CACHE_HOME=kept) for program in programs]
    without = [trips(server, program, GPURUN_CACHE="off") for program in programs]
    print(f"blocking round trips of a run with {KERNELS} kernels of one image, and with 12 images: "
          f"cold {cold}, warm {warm}, images lost {lost}, no cache {without}")
    if len(set(warm)) != 1 or max(warm) > STARTUP_MAX:
        yield f"a warm start took {warm} round trips"
    # Small images of one program go along with the first of them that has to be asked about.
    if max(cold + without) > STARTUP_MAX:
        yield f"a cold start took {cold}, one without a cache {without} round trips"
    if lost != warm:
        yield f"a start whose images the server has lost took {lost} round trips"


def main():
    program, many_kernels, many_units, training = sys.argv[1:6]
    command = [program, str(STEPS), str(READS)]
    with world.Gpurund() as server:
        world.measured(server, command)  # The machine's caches are warm.
        measurement, wrong = measure(server, command, DELAYS_S)
        if wrong:
            measurement, wrong = measure(server, command, LONGER_DELAYS_S)
        wrong += startup_complaints(server, many_kernels, many_units)
        for driver in ("null", "emulated"):
            wrong += training_complaints(training, driver)
    for function in measurement.statistics["functions"]:
        if function["fences"]:
            print(f"  {function['name']}: {function['fences']} of {function['calls']} waited")
    for line in wrong:
        print("WRONG:", line)
    return 1 if wrong else 0


sys.exit(main())
