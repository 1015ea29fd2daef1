#!/usr/bin/env python3
"""Large copies: one copy of 1 GiB, each way, of pageable and of pinned memory, brings every byte.
Client and worker hold no more of it at a time than the window of copies and the log. Of pinned
memory that the device reaches, no byte travels."""
import os
import subprocess
import sys
import threading
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../support"))
import world  # noqa: E402

(PROGRAM,) = sys.argv[1:]
DEADLINE_S = 120
# kBulkWindowBytes, kLogBytes (protocol/limits.h), and random growth of the rest of a process.
HELD_MIB_MAX = 64 + 8 + 24


def peak_mib(pid):
    return int(world.status_of(pid)["VmHWM"].split()[0]) / 1024


class LargeCopies(unittest.TestCase):
    def copied(self, kind, **changes):
        """Runs the program through gpurun. Returns the growth of the peak memory of client and
        worker since before the copy."""
        with world.Gpurund() as server, world.Statistics() as statistics, subprocess.Popen(
                [world.GPURUN, "-q", *server.transport.words, "-l", server.address, "--", PROGRAM, kind],
                text=True, env=world.client_environment(server, **statistics.variables, **changes),
                stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            watchdog = threading.Timer(DEADLINE_S, process.kill)
            watchdog.start()
            try:
                said = process.stdout.readline()
                self.assertEqual(said, "ready\n", server.log())
                both = {"client": world.running(PROGRAM), "worker": server.workers()}
                both = {name: pid for name, (pid,) in both.items()}
                before = {name: peak_mib(pid) for name, pid in both.items()}
                process.stdin.write("go\n")
                process.stdin.flush()
                self.assertEqual([process.stdout.readline() for _ in range(2)], ["copied in\n", "PASSED\n"])
                grown = {name: peak_mib(pid) - before[name] for name, pid in both.items()}
                process.stdin.write("end\n")
                process.stdin.close()
                self.assertEqual(process.wait(), 0)
                statistics.check(server)
                (self.told,) = statistics.said()
            finally:
                watchdog.cancel()
                process.kill()
        for name, mib in grown.items():
            print(f"{kind}: {name} {before[name]:.0f} MiB before, {mib:.0f} more at its peak", flush=True)
        return grown

    def test_large_copies_hold_bounded_memory(self):
        for kind in ("pageable", "pinned"):
            with self.subTest(kind):
                for name, mib in self.copied(kind, GPURUN_HOST_MEMORY="copy").items():
                    self.assertLess(mib, HELD_MIB_MAX, name)


    @unittest.skipIf(world.ARGS.transport != "shm", "the worker maps memory of its own machine only")
    def test_bytes_that_the_device_reaches_do_not_travel(self):
        self.copied("pinned")
        client = {each["name"]: each for each in self.told["functions"]}
        worker = {each["name"]: each for each in self.told["worker"]["functions"]}
        for name in ("cuMemcpyHtoD_v2", "cuMemcpyDtoH_v2"):
            with self.subTest(name):
                self.assertEqual(client[name]["reached_bytes"], 1 << 30)
                self.assertEqual((client[name]["calls"], worker[name]["calls"]), (1, 1))
                travelled = client[name]["bytes"] + worker[name]["bytes_in"] + worker[name]["bytes_out"]
                self.assertLess(travelled, 1024)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
