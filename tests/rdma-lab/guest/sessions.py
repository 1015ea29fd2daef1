"""Sessions: gpurun and gpurund in a guest, between the addresses of the two RDMA devices (network_pair.sh).
gpurund listens at rxb's address, and gpurun's packets leave by rxa's interface. Workers are confined as on
any server. Takes the words of `world`, --transport among them."""
import os
import signal
import subprocess
import sys

from perftest import FAR

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../support"))
import world  # noqa: E402

SECONDS = 4 * world.SECONDS  # Of a run in a guest, which computes 20 times slower than its machine.
PLAINTEXT = () if world.ARGS.transport == "tls" else ("--insecure-plaintext",)


def server(*words, **options):
    """A gpurund across the link. `words`: its further options. `options`: those of world.Gpurund."""
    if options.get("over", world.ARGS.transport) == "rdma":
        words += ("--fabric", "*")
    return world.Gpurund("--listen", f"{FAR}:0", *PLAINTEXT, *words, **options)


def measured(serving, *command, **changes):
    """One run to its end (world.measured), with changes of the program's environment."""
    return world.measured(serving, command, timeout=SECONDS, words=PLAINTEXT, **changes)


def kill(victim, serving):
    """Kills "worker", the one that has a session, or "daemon", without a chance to clean up."""
    if victim == "daemon":  # Its workers end with it.
        workers = serving.workers()
        os.kill(serving.process.pid, signal.SIGKILL)
        return world.until(lambda: not any(map(world.alive, workers)), "the end of the workers")
    worker, = serving.workers()
    return os.kill(worker, signal.SIGKILL)


class Process:
    """A run that a test watches and writes to, with changes of the program's environment. The end of `with` ends
    it."""

    def __init__(self, serving, *command, **changes):
        pipe = subprocess.PIPE
        self.said = ""
        self.run = subprocess.Popen(
            [world.GPURUN, "-q", *serving.transport.words, *PLAINTEXT, "-l", serving.address, "--", *command],
            env=world.client_environment(serving, **changes), stdin=pipe, stdout=pipe, stderr=pipe, text=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.run.poll() is None:
            self.run.kill()
        self.run.communicate()

    def reads(self, word):
        """Reads the program's lines until `word`."""
        for line in self.run.stdout:
            if line.strip() == word:
                return
        raise AssertionError(f"no '{word}': {self.run.stderr.read()}")

    def writes_line(self):
        self.run.stdin.write("\n")
        self.run.stdin.flush()

    def ends(self):
        """Waits for the end, which puts the rest of stdout into `said`. Returns the exit status and stderr."""
        self.said, errors = self.run.communicate(timeout=SECONDS)
        return self.run.returncode, world.without_meeting(errors)
