#!/usr/bin/env python3
"""Deaths: when one process dies, at any time, the others get one defined error and one message that
names it, and nothing remains. Worker, daemon, gpurun and program are each killed (SIGKILL) at
random moments: while gpurun and the program start, while the program attaches, at a call, in a
large copy, and while it ends. The server is a named or a private one.

Its words: the program [SEED]. GPURUN_DEATHS: how often each of the four is killed. A run without
the victim at that moment does not count, and is repeated.
"""
import collections
import os
import random
import re
import select
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../support"))
import world  # noqa: E402

# Over TCP each moment comes once on each kind of server, because the calls are the same and only
# the ends of connections differ.
OFTEN = 10 if world.ARGS.transport == "tcp" else 15
DEATHS = int(os.environ.get("GPURUN_DEATHS") or (5 if world.ARGS.sanitizer else OFTEN))
VICTIMS = ("worker", "daemon", "gpurun", "program")
# The moments, and the longest delay after the program's word, in seconds.
RUNS_MAX = 2 * DEATHS  # Of each victim.
MOMENTS = {"start": 0.15, "attach": 0.08, "call": 0.02, "copy": 0.05, "end": 0.003}
WORDS = {"attach": b"attaching", "copy": b"copying", "end": b"running"}
CALLS_MAX = 200
SLOW = 5 if world.ARGS.sanitizer else 1
DEVICE_UNAVAILABLE = 46  # CUDA_ERROR_DEVICE_UNAVAILABLE
# The one message of a run with a dead worker or server. The process that lost it prints what died,
# how, and the last call. gpurun prints it when no process had a session yet.
WORKER = r"the worker of (this|a) process died: signal 9 \(Killed\)"
SERVER = r"the private server has ended \(signal 9, Killed\)|it ended the lease: |server \S+ ended the lease: "
NO_SERVER = r"^gpurun: (server \S+ hung up: |no server at |.* did not start |.*is a private server on this)"
LOST = r"no CUDA device can be used: |is gone: "
LAST_CALL = r"; the last call was \w+ \(number \d+\)\. Every CUDA call fails from now on with "


def kill(pid):
    try:
        os.kill(pid, signal.SIGKILL)
        return True
    except ProcessLookupError:
        return False


def parts(below):
    """The processes below `below`, by name. The workers of a private server are its children."""
    found = collections.defaultdict(list)
    todo = [below]
    while todo:
        for child in world.children(todo.pop()):
            found[world.name_of(child)].append(child)
            todo.append(child)
    return found


class Death:
    """One run, its victim and the moment of the kill."""

    def __init__(self, chance, victim, number):
        self.victim = victim
        self.moment = tuple(MOMENTS)[number % len(MOMENTS)]
        self.private = (number // len(MOMENTS)) % 2 == 1
        self.seed = chance.randrange(1 << 30)
        self.call = chance.randint(1, CALLS_MAX)
        self.after = chance.uniform(0, MOMENTS[self.moment]) * SLOW
        self.killed = False
        self.lived = False  # It lost nothing that it needed.
        # Not gpurun's own child, which would die with it.
        self.below = victim == "gpurun" and number % 3 == 2 and not world.ARGS.sanitizer
        self.result = ""  # How the run ended, for the summary.

    def __str__(self):
        where = "private" if self.private else "named"
        where += ", below a shell" if self.below else ""
        return (f"{self.victim} killed {self.after * 1000:.1f} ms after {self.moment}"
                f"{' ' + str(self.call) if self.moment == 'call' else ''} ({where} server)")

    def await_word(self, output):
        """Waits until the program is at that moment. Returns False when it ended before."""
        pattern = (rb"^%d .*\n" % self.call if self.moment == "call" else
                   rb"^%s\n" % WORDS[self.moment])
        text, end = b"", time.monotonic() + 2 * world.SECONDS
        while not re.search(pattern, text, re.M):
            if time.monotonic() > end or not select.select([output], [], [], world.SECONDS)[0]:
                return False
            data = os.read(output.fileno(), 1 << 16)
            if not data:
                return False
            text += data
        return True

    def victim_process(self, run, server):
        below = parts(run.pid)
        if self.victim == "gpurun":
            return run.pid
        if self.victim == "program":
            named = os.path.basename(PROGRAM)[:15]
            return (below[named] or [None])[0]
        if self.victim == "daemon":
            return (below["gpurund"] or [None])[0] if self.private else server.process.pid
        # Nobody loses a worker that waits for a lease: gpurund starts another one.
        workers = ([pid for pid in below["gpurun-worker"] if not world.is_spare(pid)] if self.private
                   else server.workers())
        return (workers or [None])[0]

    def run(self, server, temporary):
        """Returns the failures, as lines."""
        words = [] if self.private else ["--timeout", "30s", *server.options()]
        mode = {"call": "calls", "copy": "copy", "end": "end"}.get(self.moment, "calls")
        command = [PROGRAM, mode, str(self.seed)]
        if self.below:
            command = ["sh", "-c", '"$@"; exit $?', "sh", *command]
        env = world.client_environment(server, TMPDIR=temporary)
        run = subprocess.Popen([world.GPURUN, "-q", *words, "--", *command], env=env,
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        with run.stdout, run.stderr:
            if self.moment != "start" and not self.await_word(run.stdout):
                run.kill()
                return [f"{self}: the program never came there: {run.communicate()[1]}"]
            if self.moment != "end":
                select.select([], [], [], self.after)  # The moment of death. This is only a delay.
            pid = self.victim_process(run, server)
            everybody = [run.pid, *(pid for pids in parts(run.pid).values() for pid in pids)]
            if self.moment == "end":  # The end is too short to search for a process.
                os.write(run.stdin.fileno(), b"\n")
                select.select([run.stdout], [], [], world.SECONDS)  # "ending"
                select.select([], [], [], self.after)
            self.killed = pid is not None and kill(pid)
            output, errors, left = self.ends(run, everybody)
        if left:
            return [f"{self}: not all ended, {left} live: {output[-200:]} {errors[-2000:]}"]
        return list(self.judge(run.returncode, output.decode(), errors.decode(errors="replace"),
                               everybody))

    def ends(self, run, everybody):
        """Returns the output, the messages, and the processes that had not ended in time."""
        try:
            # A program that lost nothing runs until this test ends it.
            unharmed = not self.killed or (self.moment == "start" and self.victim != "gpurun")
            return *run.communicate(timeout=3 * SLOW if unharmed else world.SECONDS), {}
        except subprocess.TimeoutExpired as late:
            left = {} if unharmed else {pid: world.name_of(pid) for pid in everybody if world.alive(pid)}
            self.lived = True
            for pid in everybody if left else parts(run.pid)[os.path.basename(PROGRAM)[:15]]:
                kill(pid)
            output, errors = run.communicate(timeout=world.SECONDS)
            return output or late.output or b"", errors or late.stderr or b"", left

    def judge(self, status, output, errors, everybody):
        lines = errors.splitlines()
        self.result = f"status {status}, {len(lines)} messages"
        for pid in everybody:
            if not world.wait(lambda pid=pid: not world.alive(pid), 10):
                yield f"{self}: {world.name_of(pid)} {pid} lives on"
        if os.environ.get("GPURUN_DEATHS_SHOW"):
            print(self, self.killed, self.result, *lines, sep="\n    ", flush=True)
        if wrong := self.misfit(status, output, lines):
            yield f"{self}: {wrong}: status {status}, {output[-200:]!r}, messages {lines}"

    def misfit(self, status, output, lines):
        """Returns why status and messages are wrong. None: they are right."""
        if self.lived or not self.killed:
            return "messages, though nobody died" if lines else None
        if self.below and len(lines) == 1:
            return None if re.search(LOST + r"|the worker of|ended the lease", lines[0]) else "another message"
        if self.victim in ("gpurun", "program"):
            return None if status in (-signal.SIGKILL, 0) and not lines else "as if not killed"
        if status == 0:  # It had everything that it needed.
            return None if self.moment == "end" and len(lines) <= 1 else "as if nobody had died"
        if status == 125 and self.victim == "worker" and len(lines) == 2:
            # The private server's first worker, which counts the devices: its reason, and gpurun's.
            return None if re.search("--count: signal 9", lines[0]) else "another reason"
        if len(lines) != 1:
            return "not one message"
        if status == 125:
            fits = self.moment == "start" and re.search(NO_SERVER, lines[0])
            return None if fits else "not the message of a server that is lost"
        if not re.search(rf"FAILED: .*: {DEVICE_UNAVAILABLE}$", output.rstrip()):
            return "another error"
        died = WORKER if self.victim == "worker" else SERVER
        began = self.moment in ("call", "copy", "end")
        return None if re.search(died + (".*" + LAST_CALL if began else ""), lines[0]) else "another message"


def state(server, temporary):
    pid = server.process.pid
    groups = "/sys/fs/cgroup"
    return {
        "workers": len(server.workers()),
        "gpurund holds": world.holdings(server),
        "descriptors of gpurund": world.descriptors(pid),
        "threads of gpurund": world.status_of(pid)["Threads"],
        "shared memory": {name for name in os.listdir("/dev/shm") if "gpurun" in name},
        # ThreadSanitizer keeps a file of its own for a moment.
        "temporary files": {name for name in os.listdir(temporary)
                            if not name.startswith("tsan.rodata")},
        "control groups": {name for name in os.listdir(groups) if "gpurun" in name}
                          if os.path.isdir(groups) else set(),
    }


class Servers:
    """The named server, replaced when it was killed."""

    def __init__(self, temporary):
        self.temporary = temporary
        self.one = None
        self.before = None

    def server(self):
        if self.one is None:
            self.one = world.Gpurund("--spare-workers", "0", env=world.environment(TMPDIR=self.temporary))
            done = world.measured(self.one, [PROGRAM, "free"])
            if done.status != 0 or not done.statistics:
                sys.exit(f"WRONG: the device cannot be asked: {done}")
            world.until(self.is_alone, "the daemon is alone")
        return self.one

    def is_alone(self):
        """Returns whether the server is idle. The thread of the last connection, possibly of this
        query, may not have ended."""
        self.before = state(self.one, self.temporary)
        # gpurund counts a worker that has ended until it is notified.
        workers = (self.before["workers"], self.before["gpurund holds"]["workers"])
        return self.before["threads of gpurund"] == world.THREADS_ALONE and workers == (0, 0)

    def look(self, death):
        """Returns the leftovers of a run, as lines."""
        if death.victim == "daemon" and death.killed and not death.private:
            self.one.process.wait(world.SECONDS)
            return self.end()
        if self.one.process.poll() is not None:
            wrong = [f"{death}: gpurund ended: {self.one.log()}"]
            self.end()
            return wrong
        if world.wait(lambda: state(self.one, self.temporary) == self.before, 15):
            return []
        after = state(self.one, self.temporary)
        wrong = [f"{death}: {what}: {self.before[what]} before, {after[what]} after"
                 for what in after if after[what] != self.before[what]]
        self.end()
        return wrong

    def end(self):
        if self.one is not None:
            self.one.__exit__(None, None, None)
        self.one = None
        return []


PROGRAM = sys.argv[1]


def look_at_private_server(server):
    """Checks that sessions with a private server use the transport, too. Servers.server() checks
    the named one."""
    with world.Statistics() as statistics:
        env = world.client_environment(server, **statistics.variables)
        done = world.gpurun("-q", "--", PROGRAM, "free", env=env)
        if done.returncode != 0:
            sys.exit(f"WRONG: a private server's device cannot be asked: {done}")
        statistics.check(server)


def main():
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(1 << 30)
    print(f"seed {seed}: {DEATHS} deaths of each of {', '.join(VICTIMS)}", flush=True)
    chance = random.Random(seed)
    wrong, results = [], collections.Counter()
    with tempfile.TemporaryDirectory() as temporary:
        os.chmod(temporary, 0o1777)  # A worker may have a user of its own.
        servers = Servers(temporary)
        look_at_private_server(servers.server())
        deaths = collections.Counter()
        for number in range(RUNS_MAX):
            for victim in VICTIMS:
                if deaths[victim] == DEATHS:
                    continue
                death = Death(chance, victim, number)
                server = servers.server()
                wrong += death.run(server, temporary)
                wrong += servers.look(death)
                deaths[victim] += death.killed
                results[death.victim, death.moment, death.killed, death.result] += 1
        servers.end()
    for (victim, moment, killed, result), count in sorted(results.items()):
        print(f"{count:4} {victim} {'killed' if killed else 'not there yet'} at {moment}: {result}")
    for victim in VICTIMS:
        print(f"{deaths[victim]:4} {victim} killed in all")
        if deaths[victim] < DEATHS:
            wrong.append(f"{victim} was killed {deaths[victim]} times in {RUNS_MAX} runs, not {DEATHS}")
    for line in wrong:
        print("WRONG:", line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
