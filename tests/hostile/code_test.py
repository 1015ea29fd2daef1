#!/usr/bin/env python3
"""A worker's confinement keeps hostile native code inside: files, network, other processes, users and memory
are out of its reach (docs/security.md). The code is that of hostile_device.cc. Each action is tried under
each kind of confinement, while an honest program holds a context on the same server. Without confinement
the actions succeed, which shows that they are real."""
import contextlib
import errno
import os
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../support"))
import world  # noqa: E402
from world import alive, environment  # noqa: E402

PROGRAM = sys.argv.pop(1)
UNAVAILABLE = 46  # CUDA_ERROR_DEVICE_UNAVAILABLE: the worker is gone.
FORBIDDEN = "ended"  # The worker: one line names the call.
MEMORY_MIB = 1024

# The outcome of each action: under the strict list of calls, then under the list for any driver if it differs,
# then without confinement. Numbers are errno, 0 is success.
ACTIONS = {
    "read_secret": (errno.EACCES, (errno.EACCES, errno.ENOENT), 0),
    "read_any_file": (errno.EACCES, 0, 0),
    "list_root": (errno.EACCES, 0, 0),
    "write_shared_memory": (FORBIDDEN, 0, 0),
    "read_environ": (errno.EACCES, errno.EACCES, 0),
    "open_memory": (FORBIDDEN, errno.EACCES, 0),
    "reach_network": (FORBIDDEN, FORBIDDEN, 0),
    "trace_other": (FORBIDDEN, FORBIDDEN, 0),
    "signal_other": (FORBIDDEN, FORBIDDEN, 0),
    "signal_thread": (FORBIDDEN, FORBIDDEN, 0),
    "read_memory_of_other": (FORBIDDEN, FORBIDDEN, 0),
    "limit_other": (FORBIDDEN, FORBIDDEN, 0),
    "signal_by_descriptor": (FORBIDDEN, FORBIDDEN, 0),
    "start_child": (FORBIDDEN, FORBIDDEN, 0),
    "start_program": (FORBIDDEN, FORBIDDEN, 0),
    "become_root": (FORBIDDEN, FORBIDDEN, 0),
    "make_namespace": (FORBIDDEN, FORBIDDEN, None),
    "make_ring": (FORBIDDEN, FORBIDDEN, None),
    "catch_the_signal": (FORBIDDEN, FORBIDDEN, 0),
    "other_machine": (FORBIDDEN, FORBIDDEN, None),
    "kill_other": (FORBIDDEN, FORBIDDEN, 0),
    "hold_up_a_close": (FORBIDDEN, FORBIDDEN, 0),
    "kill_by_x32": (FORBIDDEN, FORBIDDEN, None),  # A kernel may have no such calls.
    "open_rdma_device": (FORBIDDEN, errno.ENOENT, 0),
    "slow_other": (FORBIDDEN, errno.EPERM, 0),
}

# A machine with RDMA has a folder of nodes that every user may open. On other machines the server and its
# workers get their own /dev, with a file in place of the node.
RDMA_FOLDER = """
set -e
if [ ! -e /dev/infiniband ]; then
    mount -t tmpfs -o mode=755 none "$1"
    for from in /dev/*; do
        to=$1/${from##*/}
        if [ -L "$from" ]; then cp -P "$from" "$to"
        elif [ -d "$from" ]; then mkdir "$to" && mount --rbind "$from" "$to"
        elif [ -e "$from" ]; then : > "$to" && mount --bind "$from" "$to"
        fi
    done
    mkdir "$1/infiniband"
    : > "$1/infiniband/uverbs0"
    chmod 666 "$1/infiniband/uverbs0"
    mount --rbind "$1" /dev
fi
shift
exec "$@"
"""


# The kernel ends these itself, and the worker cannot name the call: a call of another architecture, and one
# that is made with all signals blocked.
UNNAMED = ("other_machine", "start_program")


class Stranger:
    """A server with a hostile driver, with a process of its user and an honest program beside it."""

    def __init__(self, *words, strict=True, before=()):
        self.words, self.before, self.strict = words, before, strict
        self.has_rdma = os.geteuid() == 0 or os.path.exists("/dev/infiniband/uverbs0")

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            secrets = stack.enter_context(tempfile.TemporaryDirectory())
            with open(os.path.join(secrets, "secret"), "w", encoding="utf-8",
                      opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
                file.write("a secret of the daemon's user")
            env = environment(TMPDIR=secrets, GPURUN_EMULATED="" if self.strict else "other")
            devices = stack.enter_context(tempfile.TemporaryDirectory())
            rdma = (["unshare", "--mount", "--", "sh", "-c", RDMA_FOLDER, "sh", devices]
                    if os.geteuid() == 0 else [])
            self.server = stack.enter_context(
                world.Gpurund("--log", "info", *self.words, env=env, before=[*rdma, *self.before]))
            self.victim = subprocess.Popen(["sleep", "1000"], stdin=subprocess.DEVNULL)
            stack.callback(self.end_victim)
            self.neighbour = subprocess.Popen(
                [world.GPURUN, "-q", *self.server.options(), "--", world.ARGS.client, "wait"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                env=environment(), text=True)
            stack.callback(self.end_neighbour)
            assert self.neighbour.stdout.readline() == "ready\n", self.server.log()
            self.stack = stack.pop_all()
        return self

    def end_victim(self):
        if self.victim.poll() is None:
            self.victim.kill()
        self.victim.wait(world.SECONDS)

    def end_neighbour(self):
        self.neighbour.kill()
        self.neighbour.communicate(timeout=world.SECONDS)

    def __exit__(self, *exc):
        self.stack.close()

    def parts(self):
        return re.search("workers are confined by: (.*)", self.server.log()).group(1)

    def ask(self, action, argument=None):
        """Returns the action's outcome, and the messages to the client and in the log."""
        if argument is None:
            argument = self.server.port() if action == "reach_network" else self.victim.pid
        before = len(self.server.log())
        with tempfile.TemporaryFile() as errors, subprocess.Popen(
                [world.GPURUN, "-q", "--timeout", "20s", *self.server.options(), "--", PROGRAM, action,
                 str(argument)], env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=errors, text=True) as run:
            def told():
                return os.pread(errors.fileno(), 1 << 16, 0).decode()
            outcome = run.stdout.readline()
            if outcome == "failed\n":  # Its gpurun hears why from gpurund, and says it.
                world.wait(lambda: "died" in told())
            run.communicate("\n", timeout=2 * world.SECONDS)
            said = told()
        log = self.server.log()[before:]
        if run.returncode == UNAVAILABLE:
            return FORBIDDEN, said, log
        assert run.returncode == 0, (action, outcome, said, log)
        return int(outcome), said, log

    def neighbour_ends_well(self):
        out, errors = self.neighbour.communicate("\n", timeout=world.SECONDS)
        return (self.neighbour.returncode, out, errors) == (0, "", "")


def of_users(first, last):
    """The processes of users in this range of numbers."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if alive(int(entry)) and first <= int(world.status_of(int(entry))["Uid"].split()[0]) <= last:
                found.append(int(entry))
    return found


class HostileCode(unittest.TestCase):
    def try_all(self, stranger, column):
        for action, wanted in ACTIONS.items():
            with self.subTest(action=action):
                # The list for any driver allows the files that the worker's user may see.
                came, said, log = stranger.ask(action)
                allowed = wanted[column] if isinstance(wanted[column], tuple) else (wanted[column],)
                self.assertIn(came, allowed, (said, log))
                if came == FORBIDDEN:
                    self.assertRegex(said, "died: a forbidden system call")
                    self.assertRegex(log, "worker ended with a forbidden system call")
                    if action not in UNNAMED:
                        self.assertRegex(log, r"gpurun-worker\[\d+\]: .*system call \d+ is forbidden")
        self.assertTrue(alive(stranger.victim.pid))
        self.assertIsNone(stranger.server.process.poll())
        self.assertTrue(stranger.neighbour_ends_well())

    def limits(self, stranger):
        """The worker's use of the machine is bounded, and the honest program goes on."""
        had, _, _ = stranger.ask("take_memory", 16 * MEMORY_MIB)
        self.assertGreater(had, MEMORY_MIB // 4)
        self.assertLessEqual(had, MEMORY_MIB)
        ended, said, log = stranger.ask("allocate", 16 * MEMORY_MIB)
        self.assertEqual(ended, FORBIDDEN)
        self.assertRegex(said, r"died: its memory limit \(worker-memory\)")
        self.assertRegex(log, r"worker ended with its memory limit")
        threads, _, _ = stranger.ask("start_threads", 10_000)
        self.assertLess(threads, 4096)
        descriptors, _, _ = stranger.ask("take_descriptors", 1_000_000)
        self.assertLess(descriptors, 65_536)
        self.assertEqual(stranger.ask("use_inherited")[0], 0)
        before = len(stranger.server.log())
        stranger.ask("flood_the_log", 64)
        flood = stranger.server.log()[before:]
        self.assertLess(len(flood), 1 << 20)
        self.assertIn("(more is not logged)", flood)
        self.assertNotIn("\x1b", flood)
        self.assertNotIn("\u009b", flood)
        self.assertTrue(stranger.neighbour_ends_well())

    @unittest.skipUnless(os.geteuid() == 0 and world.can_lend_users(), "needs root")
    def test_separate_user_and_strict_list_confine_worker(self):
        with Stranger() as stranger:
            self.assertEqual(stranger.parts(), "network files user system-calls")
            self.try_all(stranger, 0)

    @unittest.skipUnless(os.geteuid() == 0 and world.can_lend_users(), "needs root")
    def test_separate_user_and_general_list_confine_worker(self):
        with Stranger(strict=False) as stranger:
            self.assertEqual(stranger.parts(), "network user some-system-calls")
            self.try_all(stranger, 1)

    @unittest.skipUnless(os.geteuid() == 0 and world.can_lend_users(), "needs root")
    def test_shipped_unit_capabilities_allow_full_confinement(self):
        capable = ["setpriv", "--bounding-set", "-all,+setuid,+setgid,+kill", "--"]
        if subprocess.run([*capable, "unshare", "--user", "true"], capture_output=True,
                          timeout=world.SECONDS).returncode != 0:
            self.skipTest("needs setpriv and user namespaces")
        with Stranger(before=capable) as stranger:
            self.assertEqual(stranger.parts(), "network files user system-calls")
            (worker,) = stranger.server.workers()
            self.assertEqual({int(world.status_of(worker)[name], 16) for name in ("CapEff", "CapPrm", "CapBnd")},
                             {0})
            self.try_all(stranger, 0)

    def test_user_namespace_and_strict_list_confine_worker(self):
        with Stranger("--worker-uids", "none") as stranger:
            self.assertEqual(stranger.parts(), "user-namespace network files system-calls")
            self.try_all(stranger, 0)

    def test_missing_user_namespaces_are_reported(self):
        refusing = ["unshare", "--user", "--map-root-user", "--", "sh", "-c",
                    'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"', "sh"]
        if subprocess.run([*refusing, "true"], capture_output=True,
                          timeout=world.SECONDS).returncode != 0:
            self.skipTest("needs user namespaces")
        with Stranger("--worker-uids", "none", before=refusing) as stranger:
            self.assertNotIn("user", stranger.parts())
            self.assertIn("system-calls", stranger.parts())
            self.assertIn("workers run as this daemon's user", stranger.server.log())
            (worker,) = stranger.server.workers()
            self.assertEqual(int(world.status_of(worker)["CapEff"], 16), 0)
            listed = subprocess.run([world.GPUCTL, "list", *stranger.server.options()],
                                    env=environment(), capture_output=True, text=True,
                                    timeout=world.SECONDS)
            self.assertIn("workers run as the daemon's user", listed.stdout)
            self.assertTrue(stranger.neighbour_ends_well())

    def test_worker_memory_threads_descriptors_and_log_are_limited(self):
        users = () if world.can_lend_users() and os.geteuid() == 0 else ("--worker-uids", "none")
        with Stranger("--worker-memory", str(MEMORY_MIB << 20), *users) as stranger:
            self.limits(stranger)

    @unittest.skipUnless(os.geteuid() == 0 and world.can_lend_users(), "needs root")
    def test_children_end_with_worker_and_other_processes_survive(self):
        first, last = 2_000_000_300, 2_000_000_303
        # Like another daemon's workers, which do not know of this daemon's claims.
        others = [subprocess.Popen(["sleep", "1000"], user=uid, group=uid, extra_groups=[])
                  for uid in range(first, last + 1)]
        try:
            with Stranger("--worker-uids", f"{first}-{last}", "--confinement", "none") as stranger:
                def left():
                    return (set(of_users(first, last)) - {other.pid for other in others}
                            - set(stranger.server.workers()))
                self.assertEqual(stranger.ask("start_child", 1000)[0], 0)
                world.until(lambda: not left(), "what the worker has started ends")
                self.assertTrue(stranger.neighbour_ends_well())
            self.assertEqual([other.poll() for other in others], [None] * len(others))
        finally:
            for other in others:
                other.kill()
                other.wait(world.SECONDS)

    def test_malicious_actions_succeed_without_confinement(self):
        with Stranger("--worker-uids", "none", "--confinement", "none") as stranger:
            self.assertEqual(stranger.parts(), "nothing")
            for action, wanted in ACTIONS.items():
                if action == "open_rdma_device" and not stranger.has_rdma:
                    continue
                if wanted[2] is not None:
                    argument = 1 if action == "start_child" else None
                    self.assertEqual(stranger.ask(action, argument)[0], wanted[2], action)
            self.assertFalse(alive(stranger.victim.pid))


if __name__ == "__main__":
    world.main()
