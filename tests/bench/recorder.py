"""Recorder: perf samples of everything that the machine runs, and the roles of the sampled
processes."""
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time

import stages
import world

# Samples a second of each processor. More of them slow the measured loop down, and fewer miss
# stages with a small share.
HERTZ = 1000
ACK = b"ack\n\0"  # perf's acknowledgement.
ROLES = {"bench_client": "client", "sample_mnist": "client", "gpurun": "gpurun", "gpurun-worker": "worker",
         "gpurund": "gpurund", "delayed_link": "link", "perf": "perf", "python3": "the bench"}


class Roles:
    """The program that each process runs. `again`: looks repeatedly, for processes that have ended
    by the end. `named`: known roles of process ids, which override this."""

    def __init__(self, again, named):
        self.found, self.named, self.over = {}, named, threading.Event()
        self.look()
        self.looks = threading.Thread(target=self.look_again, daemon=True) if again else None
        if self.looks is not None:
            self.looks.start()

    def look_again(self):
        while not self.over.wait(0.05):
            self.look()

    def end(self):
        self.over.set()
        if self.looks is not None:
            self.looks.join()
        self.look()

    def look(self):
        for name in os.listdir("/proc"):
            if not name.isdigit():
                continue
            try:
                program = os.path.basename(os.readlink(f"/proc/{name}/exe"))
            except OSError:
                continue
            if program in ROLES:
                self.found[int(name)] = ROLES[program]

    def of(self, samples):
        """Returns a function sample -> role. `samples` reveal processes that were too short to be
        seen."""
        told = {sample.pid: ROLES[sample.comm] for sample in samples
                if sample.tid == sample.pid and sample.comm in ROLES}
        known = {**told, **self.found, **self.named}
        return lambda sample: known.get(sample.pid, "other")


class Recorder:
    """perf, which records from `enable` to `disable`, and acknowledges each (perf-record(1),
    --control)."""

    def __init__(self, path, errors):
        self.errors = errors
        hears, self.words = os.pipe()
        answers, says = os.pipe()
        self.process = subprocess.Popen(
            ["perf", "record", "-a", "-g", "-F", str(HERTZ), "-D", "-1", "--control", f"fd:{hears},{says}", "-o", path],
            pass_fds=(hears, says), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors)
        os.close(hears)
        os.close(says)
        self.answers = os.fdopen(answers, "rb")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGINT)
        self.process.wait(world.SECONDS)
        self.answers.close()
        os.close(self.words)

    def say(self, word):
        try:
            os.write(self.words, (word + "\n").encode())
            answer = self.answers.read(len(ACK))
        except BrokenPipeError:
            answer = b""
        if answer != ACK:
            self.errors.seek(0)
            sys.exit("profile: perf record: " + self.errors.read())


def recorded(during, many_processes=False, begin=dict):
    """Returns the Profile of the whole machine while `during()` runs, and its result. `begin()` is
    called before, when perf has started but does not record yet. It returns known roles of
    processes."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "perf.data")
        with open(os.path.join(folder, "errors"), "w+", encoding="utf-8") as errors:
            with Recorder(path, errors) as recorder:
                recorder.say("ping")
                roles = Roles(many_processes, begin())
                recorder.say("enable")
                start = time.monotonic()
                returned = during()
                seconds = time.monotonic() - start
                recorder.say("disable")
            roles.end()
        said = subprocess.run(["perf", "script", "-i", path, "-F", "comm,pid,tid,cpu,ip,sym,dso"],
                              capture_output=True, text=True, errors="replace", check=True).stdout
    samples = list(stages.read(said.splitlines()))
    return stages.Profile(samples, seconds, HERTZ, roles.of(samples)), returned
