#!/usr/bin/env python3
"""Leftovers: whatever is killed, and at whichever call, nothing remains. That covers processes,
threads and descriptors of gpurund, shared memory and temporary files. It covers gpurund's own
state: leases with their tickets, half-attached sessions, and strangers' connections. It covers
device memory, which the workers of one device share, as seen by a new lease, and by a process that
lives on while others of its lease are killed.

The program prints each CUDA call before it makes it. In most runs program, gpurun or worker die at
a random call, in the others at a random moment of the start. A worker that dies before its session
is not lost, because another takes its place. Its words: the program [SEED].
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

# Under a sanitizer each takes seconds. Over TCP the calls are the same, and only the ends of
# connections differ.
STARTS = 20 if world.ARGS.sanitizer or world.ARGS.transport == "tcp" else 50
EARLY = STARTS // 5  # Of them die at a random moment, not at a call.
EARLY_S = 0.25
AGAIN_S = 0.1  # Between kills of the processes that replace the dead ones.
CALLS_MAX = 300
SPARES = 0 if world.ARGS.sanitizer else 1  # world/server.py


def state(server, temporary):
    pid = server.process.pid
    return {
        "workers": len(server.workers()),
        # The listing's own connection is not counted, because it has proved itself and leases
        # nothing.
        "gpurund holds": world.holdings(server),
        # Before its descriptors, because a connection's thread ends after its descriptor.
        "threads of gpurund": world.status_of(pid)["Threads"],
        "descriptors of gpurund": world.descriptors(pid),
        "shared memory": {name for name in os.listdir("/dev/shm") if "gpurun" in name},
        # ThreadSanitizer keeps a file of its own for a moment.
        "temporary files": {name for name in os.listdir(temporary)
                            if not name.startswith("tsan.rodata.")},
    }


def alone(server, temporary):
    """Returns the state of an idle gpurund. Some things take a moment: the threads of the last
    connection and of the query itself end, gpurund is notified of a worker's end, and a new spare
    worker starts. The result is the very state that the last query found idle.
    """
    seen = {}

    def is_alone():
        seen.update(state(server, temporary))
        return (seen["workers"] == seen["gpurund holds"]["workers"] == 0 and
                seen["gpurund holds"]["spare_workers"] == SPARES and
                seen["threads of gpurund"] == world.THREADS_ALONE)

    world.until(is_alone, "the daemon is alone")
    return seen


def device_bytes(server, program):
    done = world.measured(server, [program, "free"])
    if done.status != 0 or not done.statistics:
        sys.exit(f"WRONG: the device cannot be asked: {done.stdout}{done.stderr}{server.log()}")
    return done.stdout.strip()


def observe(server, program, seed):
    """Returns the failures that a process with dying neighbours sees. The null device has no
    memory."""
    if world.ARGS.driver != world.DRIVERS["emulated"]:
        return []
    done = world.measured(server, [program, "observe", str(seed), str(STARTS // 5)])
    print(done.stdout.strip())
    return [] if done.status == 0 else [f"observer: {done.status} {done.stdout}{done.stderr}"]


def kill(pids):
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def last_call(output, wanted):
    """Returns the name of call `wanted` once the program makes it, or None when it ended before."""
    end = time.monotonic() + world.SECONDS
    text = b""
    while time.monotonic() < end:
        found = re.search(rb"^%d (.*)\n" % wanted, text, re.M)
        if found:
            return found.group(1).decode()
        if not select.select([output], [], [], world.SECONDS)[0]:
            break
        data = os.read(output.fileno(), 1 << 16)
        if not data:
            break
        text += data
    return None


class Killing:
    """One start, its victim, and the number of the call (0: at a random moment)."""

    def __init__(self, chance, number):
        self.victim = ("program", "gpurun", "worker", "program itself")[number % 4]
        self.call = chance.randint(1, CALLS_MAX)
        self.seed = chance.randrange(1 << 30)
        self.early = chance.uniform(0, EARLY_S) if number >= STARTS - EARLY else None
        self.reached = None  # The call's name.

    def run(self, server, program, temporary):
        """Returns the failure, or None."""
        itself = self.victim == "program itself" and self.early is None
        command = [program, "calls", str(self.seed), *([str(self.call)] if itself else [])]
        run = subprocess.Popen(
            [world.GPURUN, "-q", "--timeout", "30s", *server.options(), "--", *command],
            env=world.client_environment(server, TMPDIR=temporary), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        with run.stdout:
            if self.early is not None:
                select.select([], [], [], self.early)  # The moment of death. This is only a delay.
            else:
                self.reached = last_call(run.stdout, self.call)
            if not itself:
                victims = {"gpurun": [run.pid], "worker": server.workers()}.get(
                    self.victim, world.children(run.pid))
                kill(victims or [run.pid])  # The victim has not started yet.
            if (said := self.all_end(run, server)) is not None:
                kill([run.pid, *world.children(run.pid)])
                moment = f"at call {self.call}" if self.early is None else f"after {self.early:.3f} s"
                last = said.decode(errors="replace").splitlines()[-1:]
                return (f"{self.victim} was killed {moment}: not all ended; workers that live: "
                        f"{len(server.workers())}; the program's last word: {last}")
        if itself and self.reached and run.returncode != -signal.SIGKILL:
            return f"the program died at call {self.call}, gpurun ended with {run.returncode}"
        return None

    def all_end(self, run, server):
        """Returns None, or the program's output meanwhile. The program has also gone when its pipe
        is closed."""
        # The killed worker may have had no session yet. Its replacement has one.
        again = self.victim == "worker" and self.early is not None
        end = time.monotonic() + world.SECONDS
        while True:
            try:
                run.communicate(timeout=AGAIN_S if again else world.SECONDS)
                return None
            except subprocess.TimeoutExpired as standing:
                if not again or time.monotonic() > end:
                    return standing.output or b""
                kill(server.workers())


def lose_unused_worker(server, program, temporary):
    """Kills a lease's first worker before it has a session. Returns the failure, or None."""
    # A worker of an earlier lease would be taken for this one's.
    world.until(lambda: not server.workers(), "workers of earlier leases have ended")
    late = ["sh", "-c", 'read -r line && exec "$0" free', program]
    run = subprocess.Popen(
        [world.GPURUN, "-q", "--timeout", "30s", *server.options(), "--", *late],
        env=world.client_environment(server, TMPDIR=temporary), stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with run:
        world.until(server.workers, "the lease has a worker")
        unused = server.workers()
        kill(unused)
        world.until(lambda: not any(map(world.alive, unused)), "it has died")
        try:
            output, errors = run.communicate("\n", timeout=world.SECONDS)
        except subprocess.TimeoutExpired:
            kill([run.pid, *world.children(run.pid)])
            return "a worker died before its session: the program does not end"
    if run.returncode != 0 or "bytes free" not in output:
        return f"a worker died before its session: {run.returncode} {output}{errors}"
    return None


def kill_all(server, program, temporary, chance):
    """Returns the failures after all starts and kills."""
    killings = [Killing(chance, number) for number in range(STARTS)]
    wrong = [said for killing in killings if (said := killing.run(server, program, temporary))]
    if said := lose_unused_worker(server, program, temporary):
        wrong.append(said)
    reached = [killing for killing in killings if killing.reached]
    print(f"{STARTS} starts and kills, {len(reached)} of them at a CUDA call:",
          *(f"{name} {count}," for name, count in
            collections.Counter(killing.reached for killing in reached).most_common()),
          *(f"{name} dead {count}," for name, count in
            collections.Counter(killing.victim for killing in reached).most_common()))
    if len(reached) < STARTS / 2:
        wrong.append(f"only {len(reached)} of {STARTS} runs were killed at a CUDA call")
    return wrong


def main():
    program = sys.argv[1]
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(1 << 30)
    print(f"seed {seed}")
    # Other tests leave files in the machine's folder meanwhile.
    with tempfile.TemporaryDirectory() as temporary, \
            world.Gpurund(env=world.environment(TMPDIR=temporary)) as server:
        os.chmod(temporary, 0o1777)  # A worker may have a user of its own.
        bytes_before = device_bytes(server, program)
        seen = observe(server, program, seed)
        before = alone(server, temporary)
        wrong = seen + kill_all(server, program, temporary, random.Random(seed))
        if not world.wait(lambda: not world.running(program)):
            wrong.append(f"programs still run: {world.running(program)}")
        if not world.wait(lambda: state(server, temporary) == before):
            after = state(server, temporary)
            wrong += [f"{what}: {before[what]} before, {after[what]} after"
                      for what in before if before[what] != after[what]]
        # The one device can be leased, and has as much free memory as at first.
        bytes_after = device_bytes(server, program)
        if bytes_before != bytes_after:
            wrong.append(f"device memory: {bytes_before} before, {bytes_after} after")
        print(f"device memory: {bytes_after}")
        if server.process.poll() is not None:
            wrong.append(f"gpurund ended: {server.process.returncode}")
        if wrong:
            print(server.log()[-4000:])
    for line in wrong:
        print("WRONG:", line)
    return 1 if wrong else 0


sys.exit(main())
