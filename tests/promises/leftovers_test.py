#!/usr/bin/env python3
"""Protects: whatever is killed, and whenever, nothing is left: processes, descriptors, shared memory,
temporary files, what gpurund itself holds (leases with their tickets, half-attached sessions,
strangers at the door), and device memory where workers share a device. (Each worker of the emulated
device has its own, which is gone with the process: there only "workers" can tell.)"""
import os
import random
import signal
import subprocess
import sys
import tempfile
import time

import world

STARTS = 50
LONGEST_S = 0.6


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def files_of(folder):
    return set(os.listdir(folder))


def state(build, server, temporary):
    return {
        "workers": len(server.workers()),
        # Of the listing's own connection nothing is seen: it has proved itself, and leases nothing.
        "gpurund holds": world.holdings(build, server),
        "descriptors of gpurund": descriptors(server.process.pid),
        "shared memory": {f for f in files_of("/dev/shm") if "gpurun" in f},
        "temporary files": files_of(temporary),
    }


def device_bytes(build, server, query):
    done = world.run(build, server, [query])
    if done.status != 0:
        sys.exit(f"WRONG: the device cannot be asked: {done.stdout}{done.stderr}{server.log()}")
    return done.stdout.strip()


def kill_one(build, server, program, chance, temporary):
    """Starts a run and kills its program, its gpurun or its worker at a random time."""
    gpurun = subprocess.Popen(world.gpurun_command(build, server, [program, "forever"]),
                              env=world.gpurun_environment(server, {"TMPDIR": temporary}),
                              stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL)
    time.sleep(chance.uniform(0, LONGEST_S))  # The moment of death, not a wait for something.
    victim = chance.choice(["program", "gpurun", "worker"])
    if victim == "gpurun":
        gpurun.kill()
    else:
        pids = world.children(gpurun.pid) if victim == "program" else server.workers()
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        if not pids:  # Not that far yet.
            gpurun.kill()
    try:
        gpurun.wait(30)
    except subprocess.TimeoutExpired:
        gpurun.kill()
        gpurun.wait()
        return f"gpurun did not end after its {victim} was killed"
    return None


def main():
    build, program, query = sys.argv[1:4]
    seed = int(sys.argv[4]) if len(sys.argv) > 4 else random.randrange(1 << 30)
    print(f"seed {seed}")
    chance = random.Random(seed)
    wrong = []
    # Other tests leave files in the machine's folder meanwhile.
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as temporary, \
            world.Server(build, folder, environment={"TMPDIR": temporary}) as server:
        os.chmod(temporary, 0o1777)  # A worker may have a user of its own.
        bytes_before = device_bytes(build, server, query)
        world.eventually(lambda: not server.workers())
        before = state(build, server, temporary)
        for _ in range(STARTS):
            complaint = kill_one(build, server, program, chance, temporary)
            if complaint:
                wrong.append(complaint)
        programs_gone = world.eventually(lambda: not still_running(program))
        if not programs_gone:
            wrong.append(f"programs still run: {still_running(program)}")
        if not world.eventually(lambda: state(build, server, temporary) == before):
            after = state(build, server, temporary)
            wrong += [f"{what}: {before[what]} before, {after[what]} after"
                      for what in before if before[what] != after[what]]
        # The one device can be leased, and has as much free memory as at first.
        bytes_after = device_bytes(build, server, query)
        if bytes_before != bytes_after:
            wrong.append(f"device memory: {bytes_before} before, {bytes_after} after")
        print(f"{STARTS} starts and kills; device memory: {bytes_after}")
        if server.process.poll() is not None:
            wrong.append(f"gpurund ended: {server.process.returncode}")
        if wrong:
            print(server.log()[-4000:])
    for line in wrong:
        print("WRONG:", line)
    return 1 if wrong else 0


def still_running(program):
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                if os.readlink(f"/proc/{name}/exe") == os.path.realpath(program):
                    found.append(int(name))
            except OSError:
                pass
    return found


sys.exit(main())
