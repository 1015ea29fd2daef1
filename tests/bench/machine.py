"""Machine: runs the bench client and the raw baselines natively, through gpurun, and under another
command."""
import json
import os
import shlex
import shutil
import subprocess
import sys
import threading

import world

CLIENT = os.path.join(world.ARGS.build, "bench/bench_client")
BASELINES = os.path.join(world.ARGS.build, "bench/raw_baselines")
PLACEMENTS = ("free", "across")


class Missing(Exception):
    """A group needs something that this build lacks."""


class Machine:
    """`quick`: a hundredth of the counts and of the sizes. `under`: another way of forwarding, or
    "". `driver`: the default driver of a group: "null", "emulated", or "real", which is this
    machine's."""

    def __init__(self, rounds, quick, under="", driver="null"):
        self.rounds, self.quick, self.under = (1 if quick else rounds), quick, shlex.split(under)
        self.driver = driver
        cores = sorted(os.sched_getaffinity(0))
        pinned = not quick and shutil.which("taskset") is not None and len(cores) > 1
        self.placements = PLACEMENTS if pinned else PLACEMENTS[:1]
        self.client_core, self.server_core = str(cores[0]), str(cores[-1])

    def raw(self, placement, *words):
        return run_json([BASELINES, *self.quickly(), placement, *words], dict(os.environ))

    def quickly(self):
        return ["--quick"] if self.quick else []

    def words(self, group, *words):
        return [CLIENT, *self.quickly(), group, *map(str, words)]

    def native_environment(self, driver=None):
        driver = driver or self.driver
        if driver == "real":  # The loader finds it.
            return world.environment()
        return {**world.environment(), "LD_LIBRARY_PATH": os.path.dirname(world.DRIVERS[driver])}

    def native(self, *words, driver=None, **changes):
        return run_json(self.words(*words), {**self.native_environment(driver), **changes})

    def other(self, *words):
        return run_json([*self.under, *self.words(*words)], dict(os.environ))

    def server(self, *words, placement="free", driver=None, **changes):
        """`changes`: changes to its environment."""
        driver = driver or self.driver
        before = ("taskset", "-c", self.server_core) if placement == "across" else ()
        return world.Gpurund(*words, driver=world.DRIVERS.get(driver, driver), before=before,
                             env=world.environment(**changes) if changes else None)

    def gpurun(self, server, command, address=None, placement="free"):
        before = ["taskset", "-c", self.client_core] if placement == "across" else []
        tls = ["--tls"] if speaks_tls(server) else []
        return [*before, world.GPURUN, "-q", *tls, "-l", address or server.address, "--", *command]

    def counted(self, server, command, address=None, placement="free", statuses=(0,), **changes):
        """Returns the output of a run through gpurun, and the statistics of its one process."""
        path = os.path.join(server.folder.name, "statistics")
        environment = forwarded_environment(server, GPURUN_STATS="1", GPURUN_STATS_FILE=path, **changes)
        said = run(self.gpurun(server, command, address, placement), environment, statuses)
        with open(path, encoding="utf-8") as file:
            (statistics_of_one,) = [json.loads(line) for line in file]
        os.unlink(path)
        return said, statistics_of_one

    def forwarded(self, server, *words, address=None, placement="free", **changes):
        return run_json(self.gpurun(server, self.words(*words), address, placement),
                        forwarded_environment(server, **changes))


def speaks_tls(server):
    return "--tls" in server.process.args


def forwarded_environment(server, **changes):
    """Over TCP, as to another machine, unless `changes` names another transport."""
    return world.client_environment(server, **{
        "XDG_CONFIG_HOME": os.path.join(server.folder.name, "config"), "GPURUN_TRANSPORTS": "tcp", **changes})


def run(command, environment, statuses=(0,)):
    done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=300)
    if done.returncode not in statuses:
        sys.exit(f"bench: {' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def run_json(command, environment):
    return json.loads(run(command, environment))


class Held:
    """A program that runs until the end of `with` closes its standard input. It is ready when it
    has printed one line for each of `processes`. `result` is its output at the end. With `some`
    fewer processes may begin. `ready` counts them, and they have ended then."""

    def __init__(self, command, environment, processes=1, some=False):
        self.process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        # When one of several processes fails, it prints nothing and the others stay until their
        # input ends.
        patience = threading.Timer(2 * world.SECONDS, self.process.stdin.close)
        patience.start()
        self.ready, self.processes = 0, processes
        while self.ready < processes and self.process.stdout.readline() == "ready\n":
            self.ready += 1
        patience.cancel()
        if self.ready < processes and not some:
            self.process.kill()
            sys.exit(f"bench: {' '.join(command)} was not ready")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        said = self.process.stdout.read()
        self.process.wait(world.SECONDS)
        self.result = json.loads(said) if said.strip() and self.ready == self.processes else {}
