#!/usr/bin/env python3
"""Stalls: a slow peer does not make the memory of the other grow. A program sends 1.5 GiB while
daemon and worker are stopped, or requests 768 MiB and is stopped itself. Client and worker may then
grow only by the window of copies and the log. Once all continue, the results are right."""
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../support"))
import world  # noqa: E402

(PROGRAM,) = sys.argv[1:]
DEADLINE_S = 120
MIB = 1 << 20
# kBulkWindowBytes, kLogBytes (protocol/limits.h), and random growth of the rest of a process.
HELD_MIB_MAX = 64 + 8 + 24
STILL_S = 1  # A process that does nothing for so long waits, or is done.


def peak_mib(pid):
    return int(world.status_of(pid)["VmHWM"].split()[0]) / 1024


class Run:
    """The program through gpurun, with its words in turn."""

    def __init__(self, server, way):
        self.counter = tempfile.NamedTemporaryFile()
        self.counter.write(bytes(8))
        self.counter.flush()
        self.server, self.statistics = server, world.Statistics()
        self.process = subprocess.Popen(
            [world.GPURUN, "-q", *server.transport.words, "-l", server.address, "--", PROGRAM, way,
             self.counter.name], text=True, env=world.client_environment(server, **COPIES_TRAVEL, **self.statistics.variables),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.stopped = []
        self.watchdog = threading.Timer(DEADLINE_S, self.process.kill)
        self.watchdog.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.watchdog.cancel()
        self.continue_all()
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()
        self.counter.close()
        self.statistics.folder.cleanup()

    def begun(self):
        """Returns its process, its worker, and the peak memory of each until now."""
        if self.said() != "ready":
            raise AssertionError("the program does not begin: " + self.server.log())
        (worker,) = self.server.workers()
        (client,) = world.running(PROGRAM)
        return client, worker, {pid: peak_mib(pid) for pid in (client, worker)}

    def said(self):
        return self.process.stdout.readline().strip()

    def ends(self):
        """Ends by itself, and names its transport."""
        if self.process.wait(DEADLINE_S) != 0:
            raise AssertionError(f"the program ends with {self.process.returncode}")
        self.statistics.check(self.server)

    def go_on(self):
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def returned(self):
        with open(self.counter.name, "rb") as file:
            return int.from_bytes(file.read(8), sys.byteorder)

    def stop(self, *pids):
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
            self.stopped.append(pid)

    def continue_all(self):
        for pid in self.stopped:
            os.kill(pid, signal.SIGCONT)
        self.stopped = []


def still(look):
    """Waits until the value of `look` has not changed for a while. If that is too early, the test
    sees less memory than there will be, but the peak at the end also covers that."""
    seen, since = look(), time.monotonic()

    def unchanged():
        nonlocal seen, since
        now = look()
        if now != seen:
            seen, since = now, time.monotonic()
        return time.monotonic() - since > STILL_S

    world.until(unchanged, "standstill")
    return seen


# Memory that the device reaches is memory of both processes, and no byte of it is held.
COPIES_TRAVEL = {"GPURUN_HOST_MEMORY": "copy"}


class Stalls(unittest.TestCase):
    def assert_bounded(self, what, pid, before):
        grown = peak_mib(pid) - before
        print(f"{what}: {grown:.0f} MiB more at its peak", flush=True)
        self.assertLess(grown, HELD_MIB_MAX, what)

    def test_stopped_server_bounds_client_memory(self):
        with world.Gpurund() as server, Run(server, "in") as run:
            client, worker, before = run.begun()
            run.stop(server.process.pid, worker)
            run.go_on()
            made = still(run.returned)
            self.assertGreater(made, 0)
            self.assert_bounded("the client, its server stopped", client, before[client])
            run.continue_all()
            self.assertEqual(run.said(), "all returned")
            self.assertGreater(run.returned(), made, "no call had to wait: the program sends too little")
            self.assert_bounded("the client at the end", client, before[client])
            self.assert_bounded("its worker at the end", worker, before[worker])
            run.go_on()
            self.assertEqual(run.said(), "PASSED")
            run.ends()

    def test_stopped_client_bounds_worker_memory(self):
        with world.Gpurund() as server, Run(server, "out") as run:
            client, worker, before = run.begun()
            run.go_on()
            self.assertEqual(run.said(), "all returned")
            run.stop(client)
            still(lambda: world.stat_fields(worker)[11:13])
            self.assert_bounded("the worker, its client stopped", worker, before[worker])
            run.continue_all()
            run.go_on()
            self.assertEqual(run.said(), "PASSED")
            self.assert_bounded("the worker at the end", worker, before[worker])
            run.ends()


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
