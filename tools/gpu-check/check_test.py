#!/usr/bin/env python3
"""Tests gpu-check without a GPU: what it packs, how it ends a hanging program, and its output without a GPU.

usage: check_test.py BUILD"""
import importlib.machinery
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.dont_write_bytecode = True
import network  # noqa: E402
import sections  # noqa: E402
from outcome import Report  # noqa: E402

BUILD = os.path.abspath(sys.argv.pop(1))


def script(name):
    loader = importlib.machinery.SourceFileLoader(name, os.path.join(HERE, name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module


class Check(unittest.TestCase):
    def test_what_only_the_emulated_device_can_is_not_packed(self):
        tests = {test["name"]: test for test in script("bundle").both_ways(BUILD)}
        if not os.path.exists(os.path.join(BUILD, "programs/sample_mnist")):
            self.skipTest("no CUDA programs are built here")
        self.assertIn("sample_mnist", tests)
        self.assertIn("driver_module_images", tests)
        self.assertEqual(tests["sample_mnist"]["program"][0], os.path.join(BUILD, "programs/sample_mnist"))
        for name in ("driver_peers", "driver_waiting_calls", "no_ptx", "sample_mnist_null_device", "wrong_calls"):
            self.assertNotIn(name, tests)

    def test_a_run_that_hangs_is_ended_as_a_whole_and_its_threads_are_told(self):
        with tempfile.TemporaryDirectory() as folder:
            mark = os.path.join(folder, "child")
            inner = f"import os, time; open({mark!r}, 'w').write(str(os.getpid())); time.sleep(600)"
            outer = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {inner!r}])"
            status, _, said, _ = sections.run([sys.executable, "-c", outer], 3, env=dict(os.environ))
            self.assertIsNone(status)
            with open(mark, encoding="utf-8") as file:
                child = int(file.read())
            self.assertRegex(said, rf"(?m)^{child} {child} python")
            until = time.monotonic() + 20
            while os.path.exists(f"/proc/{child}/cmdline") and time.monotonic() < until:
                with open(f"/proc/{child}/stat", encoding="utf-8") as file:
                    if file.read().rpartition(")")[2].split()[0] == "Z":
                        break
            else:
                self.assertLess(time.monotonic(), until, "the child lives on")

    def test_what_is_wrong_is_counted_and_its_output_kept(self):
        with tempfile.TemporaryDirectory() as folder:
            report = Report(folder)
            report.begin("some", "a section")
            report.row("good", True, "right", "not kept")
            report.row("bad", False, "differs", "what it said")
            report.end()
            report.log.close()
            with open(os.path.join(folder, "gpu-check.json"), encoding="utf-8") as file:
                rows = json.load(file)["sections"]["some"]["rows"]
            self.assertEqual([row["right"] for row in rows], [True, False])
            with open(os.path.join(folder, "gpu-check.log"), encoding="utf-8") as file:
                self.assertEqual(file.read(), "==== bad: differs\nwhat it said\n")
            with open(os.path.join(folder, "gpu-check.txt"), encoding="utf-8") as file:
                self.assertTrue(file.read().endswith("1 wrong\n"))

    def test_ports_are_those_that_carry_sessions(self):
        gids = {"mlx5_0/ports/1": ("4: ACTIVE", {0: ("fe80:0000:0000:0000:0000:0000:0000:0001", "IB/RoCE v1"),
                                                 2: ("0000:0000:0000:0000:0000:ffff:c0a8:1ee7", "IB/RoCE v1"),
                                                 3: ("0000:0000:0000:0000:0000:ffff:c0a8:1ee7", "RoCE v2")}),
                "mlx5_1/ports/1": ("1: DOWN", {0: ("0000:0000:0000:0000:0000:ffff:c0a8:1ee8", "RoCE v2")}),
                "mlx5_2/ports/2": ("4: ACTIVE", {0: ("fe80:0000:0000:0000:0000:0000:0000:0001", "RoCE v2")}),
                "vmw_pvrdma0/ports/1": ("4: ACTIVE", {0: ("0000:0000:0000:0000:0000:ffff:0a00:0001", "IB/RoCE v1")})}
        with tempfile.TemporaryDirectory() as root:
            for port, (state, entries) in gids.items():
                folder = os.path.join(root, port)
                for part in ("gids", "gid_attrs/types"):
                    os.makedirs(os.path.join(folder, part))
                with open(os.path.join(folder, "state"), "w", encoding="utf-8") as file:
                    file.write(state + "\n")
                for index, words in entries.items():
                    for part, word in zip(("gids", "gid_attrs/types"), words):
                        with open(os.path.join(folder, part, str(index)), "w", encoding="utf-8") as file:
                            file.write(word + "\n")
            found = [(port.name, port.gid_index, port.address) for port in network.ports(root)]
        self.assertEqual(found, [("mlx5_0:1", 3, "192.168.30.231"), ("vmw_pvrdma0:1", 0, "10.0.0.1")])

    def test_figures_of_perftest_are_read(self):
        latency = (" #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   "
                   "99% percentile[usec]   99.9% percentile[usec] \n 8       5000          1.60           7.97         1.75   "
                   "\t       1.77        \t0.10   \t\t2.01    \t\t3.20\n")
        bandwidth = (" #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]\n"
                     " 1048576    2000             11763.65            11763.22\t\t   0.011763\n")
        self.assertAlmostEqual(network.figure("ib_send_lat -e", latency), 3.5)
        self.assertAlmostEqual(network.figure("ib_write_bw", bandwidth), 11763.22 * (1 << 20) / 1e9)
        self.assertIsNone(network.figure("ib_write_bw", "Couldn't connect to 192.168.30.231:18517\n"))

    # Programs of that name stand in for perftest: a server that stays, and a client that first finds nobody.
    def test_a_pair_of_perftest_is_run_to_its_end(self):
        with tempfile.TemporaryDirectory() as folder:
            tried = os.path.join(folder, "tried")
            text = f"""#!{sys.executable}
import os, signal, sys
if sys.argv[-1] != "192.168.30.231":
    signal.pause()
if not os.path.exists({tried!r}):
    open({tried!r}, "w").close()
    sys.exit("Couldn't connect to 192.168.30.231:18517")
assert sys.argv[1:9] == ["-F", "-d", "mlx5_0", "-i", "1", "-x", "3", "-p"], sys.argv
print(" #bytes #iterations a b c\\n 1048576 2000 11763.65 11763.22 0.01")
"""
            path = os.path.join(folder, "ib_write_bw")
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            os.chmod(path, 0o755)
            before, os.environ["PATH"] = os.environ["PATH"], folder
            self.addCleanup(os.environ.__setitem__, "PATH", before)
            value, said = network.perftest("ib_write_bw", network.Port("mlx5_0", 1, 3, "192.168.30.231"))
            self.assertTrue(os.path.exists(tried))
        self.assertAlmostEqual(value, 11763.22 * (1 << 20) / 1e9, msg=said)

    def test_rdma_behind_its_bars_is_wrong(self):
        references = {"ib_send_lat -e": 4.0, "ib_write_bw": 10.0}
        for transport, trip, copies, right in (("rdma", 5.2, 8.0, True), ("rdma", 5.3, 9.0, False), ("rdma", 5.0, 7.9, False),
                                               ("tcp", 50.0, 1.0, True)):
            with tempfile.TemporaryDirectory() as folder:
                report = Report(folder)
                report.begin("network", "a section")
                network.compare(report, network.Port("mlx5_0", 1, 3, "192.168.30.231"),
                                {"transport": transport, "session": "words", "round_trip_us": {"p50": trip},
                                 "result_us": {"p50": 9.0}, "to_device_gb_per_second": {"pinned": copies}}, references)
                report.log.close()
                self.assertEqual(report.wrong == 0, right, (transport, trip, copies))

    def test_without_a_gpu_it_says_so(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([sys.executable, "-B", os.path.join(HERE, "run"), folder, "--build", BUILD],
                                  env={**os.environ, "PATH": folder}, capture_output=True, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stderr, "gpu-check: nvidia-smi finds no GPU here\n")
        wrong = subprocess.run([sys.executable, "-B", os.path.join(HERE, "run"), folder, "--only", "nothing"],
                               capture_output=True, text=True)
        self.assertEqual(wrong.returncode, 2)
        self.assertIn("no section nothing", wrong.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
