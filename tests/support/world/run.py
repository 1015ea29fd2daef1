"""Runs of gpurun and gpuctl as processes: their environment, runs to their end, and runs with
statistics."""
import collections
import json
import os
import re
import subprocess
import tempfile
import time

from . import transports
from .arguments import ARGS, GPUCTL, GPURUN, HOME, SECONDS

# The keys of servers that this process has met. A later test's server may get the same port, with
# another key.
CONFIG = tempfile.TemporaryDirectory(prefix="gpurun-config-")


def without_meeting(errors):
    """The run's stderr without the message about its first contact with the server, which -q does
    not hide."""
    return re.sub(r"(?m)^gpurun: met the server \S+ for the first time; [^\n]*\n", "", errors)


def environment(**changes):
    """This process's environment without the variables that would change gpurun. A change to None
    removes a variable."""
    env = {k: v for k, v in os.environ.items()
           if not k.startswith("GPURUN_") and k not in ("LD_PRELOAD", "LD_LIBRARY_PATH")}
    # Tests do not use the user's caches, and the user does not use theirs. "none": this machine's
    # default servers are not used.
    env.update(GPURUN_SERVERS="none", GPURUN_DRIVER=ARGS.driver, GPURUN_CLIENT_DIR=ARGS.client_dir, GPURUN_CACHE="off",
               HOME=HOME, XDG_CACHE_HOME=os.path.join(HOME, ".cache"),
               XDG_CONFIG_HOME=CONFIG.name)
    os.makedirs(env["XDG_CACHE_HOME"], exist_ok=True)
    for name, value in changes.items():
        if value is None:
            env.pop(name, None)
        else:
            env[name] = value
    return env


def client_environment(server, **changes):
    """The environment of clients of `server` that keep their caches in its folder, and use its
    transport."""
    kept = os.path.join(server.folder.name, "client-cache")
    return environment(**{"GPURUN_CACHE": None, "XDG_CACHE_HOME": kept,
                          "GPURUN_SECRET_FILE": server.secret_file, **server.transport.variables, **changes})


def crash_kills():
    """For environment(): a sanitizer leaves SIGSEGV to the kernel."""
    return {name: os.environ.get(name, "") + ":handle_segv=0"
            for name in ("ASAN_OPTIONS", "TSAN_OPTIONS", "UBSAN_OPTIONS")}


def gpurun(*words, env=None, **options):
    """Runs gpurun to its end."""
    return subprocess.run([GPURUN, *words], env=env or environment(), capture_output=True,
                          text=True, timeout=SECONDS, stdin=subprocess.DEVNULL, **options)


def start(*words, env=None, **options):
    return subprocess.Popen([GPURUN, *words], env=env or environment(), stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, **options)


class Statistics:
    """Statistics that a run's processes write as they end. The `variables` of their environment
    request it."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = os.path.join(self.folder.name, "statistics")
        self.variables = {"GPURUN_STATS": "1", "GPURUN_STATS_FILE": self.path}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.folder.cleanup()

    def said(self):
        """One entry for each process that has ended."""
        if not os.path.exists(self.path):
            return []
        with open(self.path, encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    def check(self, server):
        """Checks that all processes that have ended had sessions over the transport of `server`."""
        transports.check(server.transport, self.said())


Run = collections.namedtuple("Run", "status stdout stderr seconds statistics")


def measured(server, command, address=None, timeout=4 * SECONDS, words=(), **changes):
    """One run on `server`, reached at `address`, with its statistics (one entry for each process).
    `words`: gpurun's own options. When the server has a transport, checks that the run used it."""
    with Statistics() as statistics:
        env = client_environment(server, **statistics.variables, **changes)
        begin = time.monotonic()
        done = subprocess.run([GPURUN, "-q", *server.transport.words, *words, "-l",
                               address or server.address, "--", *command],
                              env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              errors="replace", timeout=timeout)
        seconds = time.monotonic() - begin
        said = statistics.said()
        if said:  # A process without a session writes nothing.
            statistics.check(server)
    return Run(done.returncode, done.stdout, done.stderr, seconds, said)


def holdings(server):
    """gpurund's own report: leases, sessions, workers, strangers, and the holder of each GPU."""
    done = subprocess.run([GPUCTL, "list", "--json", *server.options()], env=environment(),
                          capture_output=True, text=True, timeout=2 * SECONDS)
    if done.returncode != 0:
        raise RuntimeError("gpuctl: " + done.stderr)
    return json.loads(done.stdout)
