#!/usr/bin/env python3
"""gpuctl: its reports on servers, and a support report with all that is needed and no secret."""
import datetime
import json
import os
import socket
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../support"))
import world  # noqa: E402
from world import environment, start, until  # noqa: E402


def gpuctl(*words, env=None, **options):
    return subprocess.run([world.GPUCTL, *words], env=env or environment(), capture_output=True,
                          text=True, timeout=world.SECONDS, stdin=subprocess.DEVNULL, **options)


class List(unittest.TestCase):
    def test_list_shows_free_and_leased_gpus(self):
        with world.Gpurund() as server:
            free = gpuctl("list", *server.options())
            self.assertEqual((free.returncode, free.stderr), (0, ""))
            self.assertRegex(free.stdout, r"^SERVER +GPU +NAME")
            self.assertRegex(free.stdout, rf"(?m)^{server.address} +0 +\S.* GiB +- +free$")
            run = start(*server.options(), "--", "sh", "-c", "echo ready; exec sleep 1000")
            run.stdout.readline()
            held = gpuctl("list", *server.options()).stdout
            self.assertRegex(held, rf"(?m)^{server.address} +0 .* 0:00:\d\d +0  \S")
            self.assertNotIn("free", held)
            waiting = start("--timeout", "30s", *server.options(), "--", "true")
            until(lambda: "1 request waits" in gpuctl("list", *server.options()).stdout, "it waits")
            run.kill()
            run.communicate(timeout=world.SECONDS)
            waiting.communicate(timeout=world.SECONDS)
            self.assertIn("free", gpuctl("list", *server.options()).stdout)

    def test_json_list_reports_daemon_state(self):
        def held(server):
            done = gpuctl("list", "--json", *server.options())
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            return json.loads(done.stdout)

        with world.Gpurund() as server:
            before = held(server)
            self.assertEqual(before["server"], server.address)
            self.assertEqual([before[what] for what in ("leases", "gathering", "workers", "half_open",
                                                        "waiting")], [0] * 5)
            self.assertIsNone(before["gpus"][0]["lease"])
            run = start(*server.options(), "--", "sh", "-c", "echo ready; exec sleep 1000")
            run.stdout.readline()
            during = held(server)
            self.assertEqual((during["leases"], during["half_open"]), (1, 0))
            lease = during["gpus"][0]["lease"]
            self.assertEqual([lease[name] for name in ("user", "host", "program", "pid", "gpus", "processes",
                                                       "transport", "encryption")],
                             ["operator", socket.gethostname(), "sh", run.pid, [0], 0, None, "none"])
            self.assertRegex(lease["address"], r"^127\.0\.0\.1:\d+$")
            since = datetime.datetime.strptime(lease["since"], "%Y-%m-%dT%H:%M:%S%z")
            age = datetime.datetime.now(datetime.timezone.utc) - since
            self.assertLess(abs(age.total_seconds() - lease["held_seconds"]), world.SECONDS)
            with socket.create_connection(server.address.rsplit(":", 1)):
                until(lambda: held(server)["half_open"] == 1, "the stranger is counted")
            run.kill()
            run.communicate(timeout=world.SECONDS)
            until(lambda: held(server) == before, "all is as before")

    def test_list_bounds_and_escapes_program_name(self):
        with world.Gpurund() as server, tempfile.TemporaryDirectory() as folder:
            hostile = "\x1b[2J\n" + "\u202e" * 100 + "\\"
            hostile = os.path.join(folder, hostile[:80])
            with open(hostile, "w", encoding="utf-8") as file:
                file.write("#!/bin/sh\necho ready; exec sleep 1000\n")
            os.chmod(hostile, 0o700)
            run = start(*server.options(), "--", hostile)
            run.stdout.readline()
            shown = gpuctl("list", *server.options()).stdout
            self.assertEqual(len(shown.splitlines()), 2 if "daemon's user" not in shown else 3)
            self.assertTrue(all(" " <= each <= "~" or each == "\n" for each in shown), shown)
            (lease,) = [gpu["lease"] for gpu in json.loads(gpuctl("list", "--json", *server.options()).stdout)[
                "gpus"]]
            self.assertTrue(lease["program"].startswith("?[2J?"), lease)
            self.assertLessEqual(len(lease["program"]), 64)
            run.kill()
            run.communicate(timeout=world.SECONDS)

    def test_list_shows_other_servers_beside_unreachable_server(self):
        with world.Gpurund() as server:
            done = gpuctl("list", "-l", f"127.0.0.1:1,{server.address}", "--secret-file",
                          server.secret_file)
            self.assertEqual(done.returncode, 125)
            self.assertIn("no server at 127.0.0.1:1", done.stderr)
            self.assertIn(server.address, done.stdout)
            wrong = gpuctl("list", "-l", server.address)
            self.assertEqual(wrong.returncode, 125)
            self.assertIn("--secret-file", wrong.stderr)

    def test_gpuctl_refuses_wrong_arguments(self):
        for words, named in (([], "subcommand"), (["unknown"], "subcommand"), (["list", "-x"], "-x"),
                             (["list", "-l", "a:b"], "a:b"), (["list", "extra"], "extra"),
                             (["list", "-l", "a", "-s", "b"], "-l excludes -s"),
                             (["list", "-s", "/no/such"], "/no/such"), (["report", "-o"], "-o")):
            done = gpuctl(*words)
            self.assertEqual((done.returncode, done.stdout), (2, ""), words)
            self.assertRegex(done.stderr, rf"^gpuctl: [^\n]*{named}[^\n]*\n$")

    def test_help_and_version_print_text(self):
        for words in (["--help"], ["list", "--help"], ["--version"]):
            done = gpuctl(*words)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertIn("gpuctl", done.stdout)

    def test_gpuctl_names_refused_secret(self):
        with world.Gpurund() as server, tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "other")
            with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="utf-8") as file:
                file.write("no secret of this server's")
            for words, env in ((["--secret-file", path], environment()),
                               ([], environment(GPURUN_SECRET_FILE=path))):
                done = gpuctl("list", "-l", server.address, *words, env=env)
                self.assertEqual(done.returncode, 125)
                self.assertIn(f"refused the secret of {path}", done.stderr)
                report = gpuctl("report", "-o", "-", "-l", server.address, *words, env=env)
                self.assertIn(f"refused the secret of {path}", report.stdout)


class Machine(unittest.TestCase):
    def test_info_names_transport_of_each_server(self):
        with world.Gpurund() as server:
            done = gpuctl("info", "--json", server.address, "-s", "/dev/null")
            self.assertEqual(done.returncode, 2)  # One of the two names the servers.
            done = gpuctl("info", "--json", server.address)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        info = json.loads(done.stdout)
        self.assertEqual([each["transport"] for each in info["transports"]], ["shm", "rdma", "tcp", "tls"])
        self.assertIn("lo", [each["name"] for each in info["network_devices"]])
        (shown,) = info["servers"]
        self.assertEqual((shown["server"], shown["network_device"]), (server.address, "lo"))
        self.assertEqual([each["transport"] for each in shown["transports"] if each["used"]], ["shm", "tcp"])
        by_tls = json.loads(gpuctl("info", "--json", "--tls", server.address).stdout)["servers"][0]["transports"]
        self.assertEqual([each["transport"] for each in by_tls if each["first"]], ["tls"])

    def test_word_none_names_no_server(self):
        env = environment(GPURUN_SERVERS="none")
        done = gpuctl("list", env=env)
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertRegex(done.stderr, r"^gpuctl: GPURUN_SERVERS names no server, by the word none[^\n]*\n$")
        done = gpuctl("info", "--json", env=env)
        self.assertEqual((done.returncode, done.stderr, json.loads(done.stdout)["servers"]), (0, "", []))

    def test_info_prints_reasons(self):
        done = gpuctl("info", "127.0.0.1", env=environment(GPURUN_TRANSPORTS="tcp"))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertRegex(done.stdout, r"(?m)^  shm +shared memory +no: GPURUN_TRANSPORTS leaves it out$")
        self.assertRegex(done.stdout, r"(?m)^  tcp +TCP +yes: a session tries it first$")
        done = gpuctl("info", "no-such-host.invalid")
        self.assertEqual(done.returncode, 125)
        self.assertRegex(done.stderr, r"^gpuctl: cannot find host 'no-such-host.invalid'[^\n]*\n$")
        self.assertIn("network devices\n", done.stdout)

    def test_topo_shows_devices_of_this_machine(self):
        shown = json.loads(gpuctl("topo", "--json").stdout)["devices"]
        done = gpuctl("topo")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        for device in shown:
            self.assertIn(device["address"], os.listdir("/sys/bus/pci/devices"))
            self.assertEqual(device["distances"][device["device"]], "X")
            self.assertIn(f"  {device['device']}: {device['address']}", done.stdout)
        if not shown:
            self.assertIn("no NVIDIA GPU", done.stdout)


class Report(unittest.TestCase):
    def test_report_has_needed_facts_and_no_secret(self):
        env = environment(GPURUN_SECRET="dont-tell", NVIDIA_API_KEY="dont-tell",
                          AWS_SECRET_ACCESS_KEY="dont-tell", CUDA_VISIBLE_DEVICES="0")
        with world.Gpurund() as server, tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "report.txt")
            done = gpuctl("report", *server.options(), "-o", path, env=env)
            self.assertEqual((done.returncode, done.stdout), (0, path + "\n"), done.stderr)
            with open(path, encoding="utf-8") as file:
                report = file.read()
            again = gpuctl("report", *server.options(), "-o", path, env=env)
            self.assertEqual(again.returncode, 125)  # Nothing is overwritten.
            with open(server.secret_file, encoding="utf-8") as file:
                self.assertNotIn(file.read(), report)
        self.assertNotIn("dont-tell", report)
        for program in (world.GPUCTL, world.GPURUN, world.GPURUND):
            version = subprocess.run([program, "--version"], capture_output=True, text=True,
                                     timeout=world.SECONDS, env=environment()).stdout
            self.assertIn(" (protocol ", version)
            self.assertEqual(report.count("\n" + version), 1, report)
        for wanted in (f"{server.address}: gpurun 0.", "glibc", "CUDA_VISIBLE_DEVICES=0",
                       "GPURUN_SECRET=(hidden)", f"{server.address} ", "locked memory",
                       "libcuda.so.1: "):
            self.assertIn(wanted, report)


if __name__ == "__main__":
    world.main()
