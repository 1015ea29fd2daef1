#!/usr/bin/env python3
"""Fabric: sessions over RDMA, on the verbs double. A session uses RDMA when both sides trust the
fabric, says why when it does not, and goes on over TCP when its queue pair fails in mid-copy.
"""
import contextlib
import ctypes
import json
import os
import resource
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../support"))
import world  # noqa: E402
from world.relay import Relay  # noqa: E402

VERBS_FOLDER = sys.argv.pop()
PROGRAM = sys.argv.pop()
# The double's NICs find each other within one network namespace, so the worker keeps that of the test.
SERVER = ("--confinement", "none", "--fabric", "rdma0:1")
OVER = "RDMA by rdma0:1 to rdma0:1, payload not encrypted"
# A program that counts its descriptors, closes those of others as a daemon does, and forks. What the double has in
# place of a kernel lies above 10000.
NEIGHBOUR = """
import ctypes, os, resource
resource.setrlimit(resource.RLIMIT_NOFILE, (20000, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
cuda = ctypes.CDLL("libcuda.so.1")
def must(code):
    if code: raise SystemExit(f"FAILED {code}")
def descriptors():
    return {fd for fd in map(int, os.listdir("/proc/self/fd")) if fd < 10000 and os.path.exists(f"/proc/self/fd/{fd}")}
def copy():
    there, back = (ctypes.c_ubyte * (1 << 20))(*os.urandom(1 << 10)), (ctypes.c_ubyte * (1 << 20))()
    must(cuda.cuMemcpyHtoD_v2(memory, there, ctypes.c_size_t(1 << 20)))
    must(cuda.cuMemcpyDtoH_v2(back, memory, ctypes.c_size_t(1 << 20)))
    print("right" if bytes(there) == bytes(back) else "wrong", flush=True)
context, memory, before = ctypes.c_void_p(), ctypes.c_uint64(), descriptors()
must(cuda.cuInit(0))
must(cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0))
must(cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(1 << 20)))
copy()
now = descriptors()
print("low", sorted(fd for fd in now - before if fd < 1024), "high", len(now - before) > 4, flush=True)
os.closerange(3, 1024)
copy()
child = os.fork()
if child == 0:
    links = [os.readlink(f"/proc/self/fd/{fd}") for fd in sorted(descriptors() - before)]
    print("child", [link for link in links if "eventpoll" not in link], flush=True)
    os._exit(0)
os.waitpid(child, 0)
copy()
"""


class Fabric(unittest.TestCase):
    def run_over(self, server, rounds=6, size=1 << 20, words=("--trust-fabric",), **changes):
        """The transport of a run that copies right, and the double's counts in the program."""
        done = world.measured(server, [PROGRAM, str(rounds), str(size)], words=words,
                              **{"GPURUN_TRANSPORTS": "rdma,tcp", "GPURUN_PACKING": "off", "LD_LIBRARY_PATH": VERBS_FOLDER, **changes})
        self.assertEqual((done.status, done.stdout, world.without_meeting(done.stderr)), (0, "right\n", ""))
        (statistics,) = done.statistics
        self.rejected = {each["transport"]: each["reason"] for each in statistics["rejected"]}
        self.statistics = statistics
        self.left = statistics["connections_that_left"]
        return statistics["transport_at_first"]

    def test_session_uses_rdma_when_both_sides_trust_the_fabric(self):
        with world.Gpurund(*SERVER) as server, tempfile.TemporaryDirectory() as folder:
            counters = os.path.join(folder, "counters")
            self.assertEqual(self.run_over(server, VERBS_DOUBLE_COUNTERS=counters), OVER)
            self.assertGreater(self.bytes_of(counters), 6 << 20)
            self.assertEqual(self.left, 0)
            for changes in ({"GPURUN_TRUST_FABRIC": "rdma0"}, {"GPURUN_TRUST_FABRIC": "rdma0:1,mlx5_0"},
                            {"GPURUN_TRUST_FABRIC": "*", "GPURUN_TRANSPORTS": "rdma"},
                            {"GPURUN_TRUST_FABRIC": "*", "GPURUN_NET_DEVICES": "rdma0:1"}):
                self.assertEqual(self.run_over(server, rounds=1, words=(), **changes), OVER)

    def test_session_keeps_clear_of_the_programs_descriptors_and_children(self):
        if world.ARGS.sanitizer == "thread":
            self.skipTest("a library with ThreadSanitizer enters no Python without it")
        if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 20000:
            self.skipTest("the limit of descriptors is too low")
        with world.Gpurund(*SERVER) as server:
            # Python frees the memory with the program's handles before a sanitizer searches for leaks.
            done = world.measured(server, [sys.executable, "-c", NEIGHBOUR], words=("--trust-fabric",),
                                  GPURUN_TRANSPORTS="rdma,tcp", GPURUN_PACKING="off", LD_LIBRARY_PATH=VERBS_FOLDER,
                                  ASAN_OPTIONS=os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0")
            self.assertEqual((done.status, done.stdout), (0, "right\nlow [] high True\nright\nchild []\nright\n"), done.stderr)
            self.assertEqual((done.statistics[0]["transport"], done.statistics[0]["connections_that_left"]), (OVER, 0))

    # The session attaches over TLS, and its bytes come back there when the fabric fails.
    def test_encrypted_session_uses_rdma_and_goes_on_over_tls(self):
        with world.Gpurund("--tls", *SERVER) as server:
            words = ("--tls", "--trust-fabric")
            self.assertEqual(self.run_over(server, words=words), OVER)
            self.assertEqual(self.run_over(server, words=("--tls",)), "TCP, encrypted by TLS")
            for fault in ("breaks_qp posts=40", "cuts_qp posts=50"):
                self.assertEqual(self.run_over(server, rounds=12, words=words, VERBS_DOUBLE_FAULTS=fault), OVER)
                self.assertGreater(self.left, 0, fault)

    def test_each_refusal_has_a_reason(self):
        with world.Gpurund(*SERVER) as server, tempfile.TemporaryDirectory() as broken:
            with open(os.path.join(broken, "libibverbs.so.1"), "w", encoding="utf-8") as file:
                file.write("no library" * 100)
            for changes, name, said in (
                    ({"GPURUN_TRUST_FABRIC": ""}, "RDMA", "the user trusts no fabric"),
                    ({"GPURUN_NET_DEVICES": "mlx5_7"}, "RDMA by rdma0:1", "GPURUN_NET_DEVICES does not name it"),
                    ({"GPURUN_TRUST_FABRIC": "mlx5_7"}, "RDMA by rdma0:1", "it is not among the trusted fabrics"),
                    ({"VERBS_DOUBLE_DEVICES": ""}, "RDMA", "this machine has no RDMA device"),
                    ({"VERBS_DOUBLE_DEVICES": "rdma0 gids=v2/192.0.2.1"}, "RDMA by rdma0:1", "none of its GIDs"),
                    ({"VERBS_DOUBLE_DEVICES": "rdma0 link=infiniband"}, "RDMA", "the server: rdma0:1: none of its GIDs"),
                    ({"VERBS_DOUBLE_FAULTS": "memlock bytes=10000"}, "RDMA by rdma0:1", "the device does not register"),
                    ({"LD_LIBRARY_PATH": broken}, "RDMA", "no RDMA library: "),
                    ({"VERBS_DOUBLE_FAULTS": "open_fails error=EACCES"}, "RDMA by rdma0", "cannot be opened: Permission denied")):
                words = () if "GPURUN_TRUST_FABRIC" in changes else ("--trust-fabric",)
                self.assertEqual(self.run_over(server, rounds=1, words=words, **changes), "TCP, not encrypted")
                self.assertEqual(list(self.rejected), [name])
                self.assertIn(said, self.rejected[name])
            done = world.measured(server, [PROGRAM, "1", "100"], GPURUN_TRANSPORTS="rdma")
            self.assertNotEqual(done.status, 0)
            self.assertRegex(done.stderr, "GPURUN_TRANSPORTS allows RDMA only, .*the user trusts no fabric")
        with world.Gpurund("--confinement", "none") as server:
            self.assertEqual(self.run_over(server, rounds=1), "TCP, not encrypted")
            self.assertEqual(self.rejected, {"RDMA": "the server trusts no fabric, or its gpurund is older"})
        with world.Gpurund("--confinement", "none", "--fabric", "mlx5_7") as server:
            self.assertEqual(self.run_over(server, rounds=1), "TCP, not encrypted")
            self.assertEqual(self.rejected, {"RDMA": "the server: rdma0:1: it is not among the trusted fabrics"})

    # One line for each device that a session rejects, also where it uses another one.
    def test_table_names_ports_and_rejected_devices(self):
        with world.Gpurund(*SERVER) as server:
            done = world.gpurun("--stats", "--trust-fabric", "--transport", "rdma,tcp", *server.options(), "--", PROGRAM, "1", "100",
                                env=world.environment(LD_LIBRARY_PATH=VERBS_FOLDER, GPURUN_NET_DEVICES="rdma0",
                                                      VERBS_DOUBLE_DEVICES="rdma0 ports=2; rdma1",
                                                      VERBS_DOUBLE_FAULTS="port_down port=2"))
        self.assertIn(f"\nover {OVER}\nnot over RDMA by rdma0:2: it is not active\n"
                      "not over RDMA by rdma1:1: GPURUN_NET_DEVICES does not name it\nfunction", done.stderr)

    def test_session_goes_on_over_tcp_when_its_queue_pair_fails(self):
        with world.Gpurund(*SERVER) as server, tempfile.TemporaryDirectory() as folder:
            for number, fault in enumerate(("breaks_qp posts=40", "breaks_qp bytes=3000000", "cuts_qp posts=50",
                                            "port_down port=1 posts=45")):
                counters = os.path.join(folder, str(number))
                self.assertEqual(self.run_over(server, rounds=12, VERBS_DOUBLE_FAULTS=fault,
                                               VERBS_DOUBLE_COUNTERS=counters), OVER)
                self.assertGreater(self.failed_of(counters), 0, fault)
                self.assertGreater(self.left, 0, fault)
                self.assertEqual(self.statistics["transport"], "TCP, not encrypted" if self.left == self.statistics["connections"]
                                 else OVER + ", and over TCP, not encrypted")
                # The server may notice first, and then asks this end to leave.
                self.assertRegex(self.statistics["why_left"], "the other end wanted it|the queue pair is out of order|the other end's device does not answer|"
                                 "reports a failed request|refuses requests")
                # Most of the 12 MiB to the device went by TCP, unless only the log's queue pair has failed.
                if "bytes" in fault or self.left == self.statistics["connections"]:
                    self.assertLess(self.bytes_of(counters), 12 << 20, fault)

    # The table says what the session uses in the end, and why it left what it had used before.
    def test_table_names_the_transport_in_the_end_and_why_the_first_was_left(self):
        with world.Gpurund(*SERVER) as server:
            done = world.gpurun("--stats", "--trust-fabric", "--transport", "rdma,tcp", *server.options(), "--", PROGRAM, "12", str(1 << 20),
                                env=world.environment(LD_LIBRARY_PATH=VERBS_FOLDER, VERBS_DOUBLE_FAULTS="port_down port=1 posts=45",
                                                      GPURUN_PACKING="off"))
        self.assertRegex(done.stderr, f"\nover TCP, not encrypted\nat first over {OVER}, until 2 of 2 connections left it: [a-z' ]+")

    def gpuctl(self, command, *words, status=0, **changes):
        """The object of JSON that a command of gpuctl prints, with RDMA instead of shared memory."""
        done = subprocess.run([world.GPUCTL, command, "--json", *words], capture_output=True, text=True,
                              timeout=6 * world.SECONDS, stdin=subprocess.DEVNULL,
                              env=world.environment(**{"GPURUN_TRANSPORTS": "rdma,tcp", "LD_LIBRARY_PATH": VERBS_FOLDER, **changes}))
        self.assertEqual((done.returncode, done.stderr), (status, ""), done.stdout)
        return json.loads(done.stdout)

    @staticmethod
    def listed(server, *words):
        return subprocess.run([world.GPUCTL, "list", "--tls", *words, *server.options()], capture_output=True, text=True,
                              timeout=world.SECONDS, env=world.environment(), stdin=subprocess.DEVNULL).stdout

    def lease_of(self, server):
        (gpu,) = json.loads(self.listed(server, "--json"))["gpus"]
        return gpu["lease"] or {"transport": None}

    @contextlib.contextmanager
    def copying(self, server, **changes):
        """A program that copies until the end of `with`."""
        run = world.start("--tls", "--trust-fabric", *server.options(), "--", PROGRAM, "1000000", str(1 << 20),
                          env=world.environment(GPURUN_TRANSPORTS="rdma,tcp", GPURUN_PACKING="off", LD_LIBRARY_PATH=VERBS_FOLDER,
                                                **changes))
        try:
            yield
        finally:
            run.kill()
            run.communicate(timeout=world.SECONDS)

    # The operator sees sessions over RDMA, their ports, that nothing is encrypted, and those that leave it.
    def test_listing_and_audit_log_show_rdma_until_the_session_leaves_it(self):
        with world.Gpurund("--tls", *SERVER) as server:
            with self.copying(server):
                world.until(lambda: self.lease_of(server)["transport"] == "rdma", "the listing shows RDMA")
                lease = self.lease_of(server)
                self.assertEqual((lease["rdma_ports"], lease["encryption"], lease["payload_encrypted"]),
                                 ("rdma0:1 to rdma0:1", "TLS 1.3", False))
                self.assertIn(", rdma by rdma0:1 to rdma0:1, TLS 1.3, RDMA payload not encrypted\n", self.listed(server))
            world.until(lambda: self.lease_of(server)["transport"] is None, "the first session has ended")
            with self.copying(server, VERBS_DOUBLE_FAULTS="port_down port=1 posts=60"):
                # The worker looks with each of its signs of life, every 5 s.
                world.until(lambda: " session.left_rdma " in self.audited(server), "the session has left RDMA")
                world.until(lambda: self.lease_of(server)["transport"] == "tcp", "the listing shows TCP")
                self.assertEqual((self.lease_of(server)["rdma_ports"], self.lease_of(server)["payload_encrypted"]), (None, True))
            self.assertRegex(self.audited(server), r' session.over_rdma user=operator session=[0-9a-f]+ ports="rdma0:1 to rdma0:1" '
                                                   'encryption="payload not encrypted"\n')
            self.assertRegex(self.audited(server), r' session.left_rdma user=operator session=[0-9a-f]+ connections="2 of 2" '
                                                   'reason="[a-z]')

    # The worker offers, and then the client's device refuses both connections: at the posts of receives behind those of
    # the two probes.
    def test_session_whose_client_refuses_the_answer_is_not_shown_as_rdma(self):
        refuses = "; ".join(f"post_fails at={at} kind=recv error=ENOMEM" for at in (2100, 2101))
        with world.Gpurund("--tls", *SERVER) as server:
            self.assertEqual(self.run_over(server, words=("--tls", "--trust-fabric"), VERBS_DOUBLE_FAULTS=refuses), "TCP, encrypted by TLS")
            self.assertIn("no receive can be posted", self.rejected["RDMA"])
            with self.copying(server, VERBS_DOUBLE_FAULTS=refuses):
                world.until(lambda: self.lease_of(server)["transport"] == "tcp", "the listing shows TCP")
                self.assertTrue(self.lease_of(server)["payload_encrypted"])
            world.until(lambda: not server.workers(), "the workers have ended")
            self.assertNotIn("_rdma ", self.audited(server))

    @staticmethod
    def audited(server):
        with open(server.audit_file, encoding="utf-8") as file:
            return file.read()

    def test_netperf_measures_each_port(self):
        with world.Gpurund(*SERVER) as server:
            report = self.gpuctl("netperf", "--trust-fabric", "--seconds", "0.3", "--link-mbit", "1000", *server.options(),
                                 VERBS_DOUBLE_DEVICES="rdma0 ports=2; rdma1 gids=v2/192.0.2.1")
            rdma = [each for each in report["transports"] if each["transport"] == "rdma"]
            self.assertEqual([each["port"] for each in rdma], ["rdma0:1", "rdma0:2"])
            for each in rdma:
                self.assertEqual((each["available"], each["reason"]), (True, None))
                self.assertEqual(each["session"], f"RDMA by {each['port']} to rdma0:1, payload not encrypted")
                self.assertGreater(each["round_trip_us"]["p50"], 0)
                self.assertTrue(all(each["to_device_gb_per_second"].values()) and all(each["from_device_gb_per_second"].values()))
                self.assertIn(each["verdict"]["link"], ("ok", "below"))
            for changes, said in (({"GPURUN_TRUST_FABRIC": ""}, "the user trusts no fabric"),
                                  ({"VERBS_DOUBLE_DEVICES": ""}, "this machine has no RDMA device"),
                                  ({"VERBS_DOUBLE_DEVICES": "rdma0 gids=v2/192.0.2.1"}, "rdma0:1: none of its GIDs"),
                                  ({"GPURUN_TRANSPORTS": "tcp"}, "GPURUN_TRANSPORTS leaves it out")):
                report = self.gpuctl("netperf", "--seconds", "0.1", *server.options(), **{"GPURUN_TRUST_FABRIC": "*", **changes})
                (rdma,) = [each for each in report["transports"] if each["transport"] == "rdma"]
                self.assertIn(said, rdma["reason"])
                self.assertIsNone(rdma["round_trip_us"])
            # netperf drops the figures of a session that has left RDMA.
            report = self.gpuctl("netperf", "--trust-fabric", "--seconds", "0.1", *server.options(),
                                 VERBS_DOUBLE_FAULTS="breaks_qp posts=60")
            (rdma,) = [each for each in report["transports"] if each["transport"] == "rdma"]
            self.assertIn("went on over another one", rdma["reason"])
            self.assertIsNone(rdma["round_trip_us"])
        # What this machine cannot know is found by the session.
        with world.Gpurund("--confinement", "none") as server:
            report = self.gpuctl("netperf", "--trust-fabric", "--seconds", "0.1", *server.options())
            (rdma,) = [each for each in report["transports"] if each["transport"] == "rdma"]
            self.assertIn("the server trusts no fabric", rdma["reason"])

    def test_info_lists_devices_and_reasons(self):
        devices = "rdma0 ports=2 inline=100; rdma1"
        info = self.gpuctl("info", "--trust-fabric=rdma0", "127.0.0.1:1", VERBS_DOUBLE_DEVICES=devices,
                           VERBS_DOUBLE_FAULTS="port_down port=2")
        self.assertEqual({each["port"]: each["reason"] for each in info["rdma_ports"]},
                         {"rdma0:1": None, "rdma0:2": "it is not active", "rdma1:1": "it is not among the trusted fabrics"})
        self.assertLessEqual(info["rdma_devices"][0]["limits"]["inline_bytes"], 100)
        self.assertEqual(info["rdma_packets"], {"service_level": 0, "traffic_class": 0})
        self.assertTrue(info["rdma_library"].startswith(VERBS_FOLDER))
        rdma = {each["transport"]: each for each in info["servers"][0]["transports"]}["rdma"]
        self.assertEqual((rdma["used"], rdma["first"], rdma["port"]), (True, True, "rdma0:1"))
        info = self.gpuctl("info", "127.0.0.1:1", GPURUN_SERVICE_LEVEL="3", GPURUN_TRAFFIC_CLASS="106", GPURUN_NET_DEVICES="rdma7", GPURUN_TRUST_FABRIC="*")
        rdma = {each["transport"]: each for each in info["servers"][0]["transports"]}["rdma"]
        self.assertEqual(rdma["reason"], "rdma0:1: GPURUN_NET_DEVICES does not name it")
        self.assertEqual(info["rdma_packets"], {"service_level": 3, "traffic_class": 106})

    def test_health_fails_where_a_trusted_fabric_does_not_work(self):
        with world.Gpurund(*SERVER) as server:
            for status, verdict, said, changes in (
                    (0, "n/a", "the user trusts no fabric", {}),
                    (0, "ok", "may use rdma0:1", {"GPURUN_TRUST_FABRIC": "*"}),
                    (1, "failed", "rdma0:1: none of its GIDs",
                     {"GPURUN_TRUST_FABRIC": "*", "VERBS_DOUBLE_DEVICES": "rdma0 gids=v2/192.0.2.1"}),
                    (1, "failed", "GPURUN_TRUST_FABRIC: ", {"GPURUN_TRUST_FABRIC": ","}),
                    (0, "n/a", "use shared memory", {"GPURUN_TRUST_FABRIC": "*", "GPURUN_TRANSPORTS": ""})):
                report = self.gpuctl("health", *server.options(), status=status, **changes)
                (rdma,) = [each for each in report["checks"] if each["check"] == "rdma"]
                self.assertEqual(rdma["verdict"], verdict)
                self.assertIn(said, rdma["text"])

    # TCP has what agrees on the session, and nothing of its calls and copies.
    def test_tcp_carries_next_to_nothing_of_a_session_over_rdma(self):
        with world.Gpurund(*SERVER) as server, Relay(server.port()) as relay:
            done = world.measured(server, [PROGRAM, "12", str(4 << 20)], address=relay.address, words=("--trust-fabric",),
                                  **{"GPURUN_TRANSPORTS": "rdma", "GPURUN_PACKING": "off", "LD_LIBRARY_PATH": VERBS_FOLDER})
            self.assertEqual((done.status, done.stdout), (0, "right\n"), done.stderr)
            self.assertEqual(done.statistics[0]["bulk_connections_most"], 1)
            world.until(relay.quiet, "the client has ended its connections")
            self.assertLess(sum(map(len, relay.heard + relay.told)), 64 << 10)

    # Each connection registers memory of its own, and a limit may suffice for the first alone.
    def test_copies_stay_with_tcp_where_only_the_log_finds_memory(self):
        with world.Gpurund(*SERVER) as server:
            limit = {"VERBS_DOUBLE_FAULTS": f"memlock bytes={(4 << 20) + (128 << 10)}"}
            self.assertEqual(self.run_over(server, rounds=2, **limit), OVER)
            self.assertIn("does not register", self.rejected["RDMA with large copies"])
            done = world.measured(server, [PROGRAM, "1", "100"], words=("--trust-fabric",),
                                  **{"GPURUN_TRANSPORTS": "rdma", "LD_LIBRARY_PATH": VERBS_FOLDER, **limit})
            self.assertNotEqual(done.status, 0)
            self.assertRegex(done.stderr, "GPURUN_TRANSPORTS allows RDMA only, .*does not register")

    # Each bulk connection has a port of its own, and a rail that dies in mid-copy takes only its own to TCP.
    def test_bulk_connections_use_all_ports_and_outlive_one_that_dies(self):
        rails = {"GPURUN_BULK_CONNECTIONS": "2", "VERBS_DOUBLE_DEVICES": "rdma0 ports=2"}
        over = ("RDMA by rdma0:1 to rdma0:1 for calls, and by rdma0:1 to rdma0:1 and rdma0:2 (rail 2 of 2) to rdma0:1 "
                "for copies, payload not encrypted")
        with world.Gpurund(*SERVER) as server, tempfile.TemporaryDirectory() as folder:
            self.assertEqual(self.run_over(server, rounds=12, **rails), over)
            self.assertEqual((self.left, self.rejected), (0, {}))
            # The first port dies early. What RDMA carries then, the second port has brought.
            counters = os.path.join(folder, "counters")
            self.run_over(server, rounds=40, VERBS_DOUBLE_FAULTS="port_down port=1 posts=60", VERBS_DOUBLE_COUNTERS=counters, **rails)
            self.assertEqual(self.left, 2)
            self.assertGreater(self.bytes_of(counters), 10 << 20)
            self.assertEqual(self.run_over(server, rounds=40, VERBS_DOUBLE_FAULTS="port_down port=2 posts=200", **rails), over)
            self.assertEqual((self.left, self.statistics["connections"]), (1, 3))
            self.assertEqual(self.statistics["transport"], over + ", and over TCP, not encrypted")

    # The kernel's limit is divided over the connections, so that large copies have RDMA, too.
    def test_limit_of_locked_memory_is_divided_over_the_connections(self):
        def without_lock_capability():
            resource.setrlimit(resource.RLIMIT_MEMLOCK, (1 << 20, 1 << 20))
            ctypes.CDLL(None).prctl(24, 14, 0, 0, 0)  # PR_CAPBSET_DROP, CAP_IPC_LOCK.

        with world.Gpurund(*SERVER) as server, world.Statistics() as statistics:
            env = world.environment(GPURUN_TRANSPORTS="rdma", GPURUN_PACKING="off", LD_LIBRARY_PATH=VERBS_FOLDER,
                                    VERBS_DOUBLE_FAULTS=f"memlock bytes={1 << 20}", **statistics.variables)
            done = world.gpurun("--trust-fabric", *server.options(), "--", PROGRAM, "6", str(1 << 20), env=env,
                                preexec_fn=without_lock_capability)
            self.assertEqual((done.returncode, done.stdout), (0, "right\n"), done.stderr)
            (said,) = statistics.said()
            self.assertEqual((said["transport"], said["rejected"]), (OVER, []))

    @staticmethod
    def counter(path, index):
        with open(path, "rb") as file:
            file.seek(8 * index)
            return int.from_bytes(file.read(8), "little")

    def bytes_of(self, path):
        return self.counter(path, 8)

    def failed_of(self, path):
        return self.counter(path, 17)


if __name__ == "__main__":
    world.main()
