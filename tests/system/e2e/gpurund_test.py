#!/usr/bin/env python3
"""gpurund as an operator sees it: its service manager, its workers' users and environment, its end,
and its messages about a worker's death. The clients here are real."""
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import tomllib
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../support"))
import world  # noqa: E402
from world import alive, can_be, can_lend_users, environment, gpurun, name_of, status_of, until  # noqa: E402
from gpu_program import GpuProgram  # noqa: E402
from tls_ends import attach_with, session_of  # noqa: E402

DEVICE_UNAVAILABLE = 46  # CUDA_ERROR_DEVICE_UNAVAILABLE


def read_only_machine(*folders, powers=None):
    """Words that start a daemon that can write only to `folders` (each with its mode), /dev, /proc
    and /sys, as ProtectSystem=strict leaves it. `powers`: its only capabilities. The contents of
    /run, /var/cache and /var/lib are hidden there."""
    script = "for place in /run /var/cache /var/lib; do mount -t tmpfs -o mode=755 none $place; done\n"
    for folder, mode in folders:
        script += f"mkdir -m {mode} {folder}; mount --bind {folder} {folder}\n"
    # Some of the mounted folders are hidden by now.
    script += """while read -r _ _ _ _ place _; do
        place=$(printf %%b "$place")
        case $place in /dev|/dev/*|/proc|/proc/*|/sys|/sys/*%s) continue ;; esac
        [ ! -e "$place" ] || mount -o remount,bind,ro "$place"
    done < /proc/self/mountinfo
    exec "$@"
    """ % "".join(f"|{folder}" for folder, _ in folders)
    words = ["unshare", "--mount", "--propagation", "private", "--", "sh", "-ec", script, "sh"]
    if powers is not None:
        kept = ",".join("+" + power.removeprefix("CAP_").lower() for power in powers)
        words += ["setpriv", "--bounding-set", f"-all,{kept}", "--"]
    return words


def why_not(words):
    """Returns why a process started by these words could not run a daemon of this build. Empty when
    it could."""
    if os.geteuid() != 0:
        return "needs root, for a mount namespace"
    if not can_lend_users():
        return "needs a user namespace that knows the workers' users"
    done = subprocess.run([*words, "sh", "-c", 'test -x "$1" && test -r "$2"', "sh", world.GPURUND,
                           world.ARGS.driver], capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, timeout=world.SECONDS)
    return "" if done.returncode == 0 else f"needs mounts, and this build for root: {done.stderr}"


def zombies_of(parent):
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        fields = world.stat_fields(entry)
        if fields is not None and fields[0] == "Z" and int(fields[1]) == parent:
            found.append(int(entry))
    return found


class SystemdUnit(unittest.TestCase):
    """The shipped unit leaves the daemon all that it needs. PrivateTmp is not repeated here: /tmp
    is read-only instead, which is stricter."""

    def setUp(self):
        self.source = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                   "../../../packaging/systemd")
        self.unit = {}
        with open(os.path.join(self.source, "gpurund.service.in"), encoding="utf-8") as file:
            for line in file:
                if not line.startswith(("#", "[")) and "=" in line:
                    name, value = line.strip().split("=", 1)
                    self.unit[name] = value

    def start(self, *folders, words=()):
        before = read_only_machine(*folders, powers=self.unit["CapabilityBoundingSet"].split())
        if reason := why_not(before):
            self.skipTest(reason)
        return world.Gpurund("--config", os.path.join(self.source, "gpurund.toml"), *words, cache=None,
                             with_secret=False, before=before,
                             env=environment(CACHE_DIRECTORY="/var/cache/gpurun",
                                             STATE_DIRECTORY="/var/lib/gpurun"))

    def test_installed_settings_bound_each_user(self):
        with open(os.path.join(self.source, "gpurund.toml"), "rb") as file:
            bounds = tomllib.load(file)["every-user"]
        self.assertEqual((bounds["max-leases"], bounds["max-sessions"]), (32, 256))

    def test_program_runs_under_restrictions_of_unit(self):
        self.assertEqual(self.unit["ProtectSystem"], "strict")
        folders = [(f"/var/cache/{self.unit['CacheDirectory']}", self.unit["CacheDirectoryMode"]),
                   (f"/var/lib/{self.unit['StateDirectory']}", self.unit["StateDirectoryMode"])]
        if "RuntimeDirectory" in self.unit:
            folders.append((f"/run/{self.unit['RuntimeDirectory']}",
                            self.unit["RuntimeDirectoryMode"]))
        # The daemon's /run is its own, and so are its claims on users. A user that another daemon
        # also lends would be shared by two workers, and would end with that daemon.
        first = 2_010_000_000 + 8 * os.getpid()
        if not can_be(first + 7):
            self.skipTest("needs a user namespace that knows the workers' users")
        with self.start(*folders, words=("--worker-uids", f"{first}-{first + 7}")) as server:
            self.assertNotEqual(server.address, "", server.process.poll())
            # In the daemon's mount namespace, which has its /run.
            there = ("nsenter", "--target", str(server.process.pid), "--mount", "--")
            program = GpuProgram(server, before=there)
            (worker,) = server.workers()
            self.assertIn(int(status_of(worker)["Uid"].split()[0]), range(first, first + 8))
            self.assertEqual(program.go_on(), ("", ""))
            self.assertEqual(program.run.returncode, 0)
        self.assertEqual(server.errors, "")

    def test_missing_claims_folder_stops_start(self):
        with self.start(("/var/cache/gpurun", "0700")) as server:
            self.assertEqual(server.address, "")
            self.assertNotEqual(server.process.wait(world.SECONDS), 0)
        self.assertRegex(server.errors, r'/run/gpurun: .*worker-uids = "none"')

    def test_unmapped_worker_users_stop_start_and_name_setting(self):
        container = ["unshare", "--user", "--map-root-user", "--"]
        if subprocess.run([*container, "true"], capture_output=True,
                          timeout=world.SECONDS).returncode != 0:
            self.skipTest("needs user namespaces")
        told = [["--worker-uids", "2000000000-2000000009"]]
        for words in [[], *told] if can_lend_users() else told:
            with world.Gpurund("--log", "warning", *words, before=container) as server:
                self.assertEqual(server.address, "")
                self.assertEqual(server.process.wait(world.SECONDS), 1)
            self.assertRegex(server.errors,
                             r'cannot become user 2000000000 .*worker-uids = "none"')
        with world.Gpurund("--worker-uids", "none", before=container) as server:
            done = gpurun(*server.options(), "--", world.ARGS.client, "once")
            self.assertEqual((done.returncode, done.stderr), (0, ""))


class DaemonProcess(unittest.TestCase):
    """Many clients and their shared memory need more descriptors than a shell's 1,024."""

    def test_daemon_raises_descriptor_limit_to_hard_limit(self):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(256, hard), hard))
        try:
            with world.Gpurund() as server:
                self.assertEqual(resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE), (hard, hard))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    def test_daemon_memory_is_unreadable_for_its_user(self):
        """A server holds secrets. Another process of its user cannot read them, and a core does not
        contain them."""
        uid = 2_000_000_400
        if os.getuid() != 0 or not can_be(uid):
            self.skipTest("needs another user")
        if world.ARGS.sanitizer:
            self.skipTest("a sanitizer looks at its process from outside")
        as_user = {"user": uid, "group": uid, "extra_groups": [], "stdin": subprocess.DEVNULL}

        def read(pid):
            return subprocess.run(["head", "-c1", f"/proc/{pid}/environ"], capture_output=True,
                                  timeout=world.SECONDS, check=False, **as_user)

        def cores(pid):
            with open(f"/proc/{pid}/limits", encoding="utf-8") as file:
                (line,) = [line for line in file if line.startswith("Max core file size")]
            return line.split()[4:6]

        reading, writing = os.pipe()
        with tempfile.TemporaryDirectory() as folder, os.fdopen(reading, encoding="utf-8") as ready:
            os.chown(folder, uid, uid)
            with subprocess.Popen(
                    [world.GPURUND, "--listen", "127.0.0.1:0", "--driver", world.ARGS.driver, "--tokens", "none",
                     "--audit", "none", "--cache", "none", "--confinement", "none", "--ready-fd", str(writing)],
                    pass_fds=[writing], env=environment(XDG_RUNTIME_DIR=folder, HOME=folder), **as_user) as daemon:
                os.close(writing)
                try:
                    self.assertTrue(ready.readline().startswith("127.0.0.1:"))
                    until(lambda: world.children(daemon.pid), "it has a worker")
                    self.assertIn(b"Permission denied", read(daemon.pid).stderr)
                    self.assertEqual(cores(daemon.pid)[0], "0")
                    # A worker has the same settings as without the protection.
                    (worker,) = world.children(daemon.pid)
                    until(lambda: read(worker).returncode == 0, "a worker can be looked at")
                    self.assertEqual(cores(worker), cores("self"))
                finally:
                    daemon.kill()


class ServiceManager(unittest.TestCase):
    def test_daemon_notifies_readiness_and_stop(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "notify")
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
                notify.bind(path)
                notify.settimeout(world.SECONDS)
                with world.Gpurund(env=environment(NOTIFY_SOCKET=path)) as server:
                    told = notify.recv(4096).decode()
                    self.assertIn("READY=1\n", told)
                    self.assertIn(server.address, told)
                    server.process.send_signal(signal.SIGTERM)
                    self.assertEqual(notify.recv(4096), b"STOPPING=1")
                    self.assertEqual(server.process.wait(world.SECONDS), 0)

    def test_stop_ends_leases_and_workers(self):
        with world.Gpurund() as server:
            program = GpuProgram(server)
            workers = server.workers()
            self.assertEqual(len(workers), 1)
            server.process.send_signal(signal.SIGTERM)
            self.assertEqual(server.process.wait(world.SECONDS), 0)
            self.assertFalse(any(alive(pid) for pid in workers))
            _, errors = program.go_on()
            self.assertEqual(program.run.returncode, DEVICE_UNAVAILABLE)
            self.assertRegex(errors, r"^gpurun: error: \S+: the server was stopped by its operator; "
                                     r"the last call was [^\n]*\n$")


class RunSecret(unittest.TestCase):
    """A daemon without a configured secret serves only its own user, without any option on the
    client's side."""

    def setUp(self):
        self.user = []
        if os.geteuid() == 0:  # A user other than root, with a runtime folder of that user.
            self.user = ["unshare", "--user", "--map-user=1000", "--map-group=1000", "--"]
            if subprocess.run([*self.user, "true"], capture_output=True,
                              timeout=world.SECONDS).returncode != 0:
                self.skipTest("needs user namespaces, or not to be root")
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.runtime = holder.name
        self.env = environment(XDG_RUNTIME_DIR=self.runtime)

    def serve(self, **changes):
        return world.Gpurund(with_secret=False, before=self.user, env={**self.env, **changes})

    def run_as_user(self, *words, env=None):
        return subprocess.run([*self.user, *words], env=env or self.env, capture_output=True,
                              text=True, timeout=world.SECONDS, stdin=subprocess.DEVNULL)

    def use(self, server, env=None):
        return self.run_as_user(world.GPURUN, "-l", server.address, "--", world.ARGS.client, "once",
                                env=env)

    def file_of(self, server):
        return os.path.join(self.runtime, "gpurun", f"{server.port()}.secret")

    def test_owner_needs_no_option(self):
        with self.serve() as server:
            path = self.file_of(server)
            self.assertEqual(os.stat(path).st_mode & 0o7777, 0o600)
            done = self.use(server)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            for name in (server.address, f"localhost:{server.port()}"):
                done = self.run_as_user(world.GPUCTL, "list", "-l", name)
                self.assertEqual((done.returncode, done.stderr), (0, ""))
            server.process.terminate()
            self.assertEqual(server.process.wait(world.SECONDS), 0)
            self.assertFalse(os.path.exists(path))
        # In builds with a sanitizer, and on some kernels, nothing separates workers from their
        # daemon's user.
        said = [line for line in server.errors.splitlines() if "what else confines them" not in line]
        self.assertEqual(said, [])

    def test_other_users_are_refused_with_reason(self):
        with self.serve() as server, tempfile.TemporaryDirectory() as elsewhere:
            other = {**self.env, "XDG_RUNTIME_DIR": elsewhere}
            without = {name: value for name, value in self.env.items() if name != "XDG_RUNTIME_DIR"}
            for env, why in ((other, "No such file"), (without, "XDG_RUNTIME_DIR is not set")):
                done = self.use(server, env=env)
                self.assertEqual(done.returncode, 125)
                self.assertRegex(done.stderr, f"wants a token, and none was found.*{why}")
            if self.user:  # At root's own path.
                done = gpurun("-l", server.address, "--", "true", env=self.env)
                self.assertRegex(done.stderr, r"wants a token, and none was found.*/run/gpurun/\d+\.secret")

    def test_readable_secret_file_is_refused(self):
        with self.serve() as server:
            os.chmod(self.file_of(server), 0o640)
            done = self.use(server)
            self.assertEqual(done.returncode, 125)
            self.assertIn("others may read", done.stderr)

    def test_secret_of_killed_daemon_is_refused(self):
        with self.serve() as server:
            server.process.kill()
            server.process.wait(world.SECONDS)
            left = self.file_of(server)
            self.assertTrue(os.path.exists(left))
        with self.serve() as server:
            os.rename(left, left + ".kept")
            self.assertEqual(self.use(server).returncode, 0)
            os.rename(left + ".kept", self.file_of(server))
            self.assertIn("the secret is wrong", self.use(server).stderr)

    def test_missing_runtime_folder_stops_start(self):
        env = {name: value for name, value in self.env.items() if name != "XDG_RUNTIME_DIR"}
        with world.Gpurund(with_secret=False, before=self.user, env=env) as server:
            self.assertEqual(server.address, "")
            self.assertEqual(server.process.wait(world.SECONDS), 1)
        self.assertRegex(server.errors, "XDG_RUNTIME_DIR .*--secret-file")


class RefusedAttach(unittest.TestCase):
    """A process gets the reason when its attach is refused. A shared server also warns its operator.
    A private server does not, because it writes to the terminal of that process."""

    REASON = "the ticket is not proved"

    def refuse(self, *words):
        """The run's stderr. Meanwhile another process attached with an altered ticket."""
        run = subprocess.Popen([world.GPURUN, "-q", *words, "--", world.ARGS.client, "wait"], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(), text=True)
        self.assertEqual(run.stdout.readline(), "ready\n")
        session = session_of(run.pid)
        session["key"] = ("1" if session["key"][0] == "0" else "0") + session["key"][1:]
        with tempfile.TemporaryDirectory() as folder:
            done = attach_with(session, folder)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(self.REASON, done.stderr)
        _, errors = run.communicate("\n", timeout=world.SECONDS)
        self.assertEqual(run.returncode, 0, errors)
        return errors

    def test_private_server_does_not_warn(self):
        self.assertEqual(self.refuse("-l", "none"), "")

    def test_shared_server_warns_operator(self):
        with world.Gpurund() as server:
            self.refuse(*server.options())
        self.assertRegex(server.errors, rf"\[warning\] .*attach: {self.REASON}")


class Workers(unittest.TestCase):
    def test_worker_runs_as_separate_user_without_privileges(self):
        first = 2_000_000_100
        if os.getuid() != 0 or not can_be(first):
            self.skipTest("needs root in a user namespace that knows the worker's users")
        with world.Gpurund("--worker-uids", f"{first}-{first + 9}") as server:
            seen = set()
            for _ in range(2):
                program = GpuProgram(server)
                (worker,) = server.workers()
                status = status_of(worker)
                self.assertEqual(len(set(status["Uid"].split())), 1)
                self.assertEqual(len(set(status["Gid"].split())), 1)
                self.assertEqual(status["Groups"].strip(), "")
                self.assertEqual(int(status["CapEff"], 16), 0)
                self.assertEqual(status["NoNewPrivs"], "1")
                seen.add(int(status["Uid"].split()[0]))
                self.assertEqual(program.go_on(), ("", ""))
                self.assertEqual(program.run.returncode, 0)
                until(lambda: not server.workers(), "the worker ends")
        self.assertEqual(len(seen), 2)
        self.assertLessEqual(seen, set(range(first, first + 10)))

    def test_upgrade_leaves_worker_of_running_daemon(self):
        """A package puts the next release's worker in place while gpurund runs. The old gpurund still
        starts the worker of its own release."""
        with tempfile.TemporaryDirectory() as folder:
            worker = os.path.join(folder, "gpurun-worker")
            shutil.copy(os.path.join(world.ARGS.build, "bin/gpurun-worker"), worker)
            os.chmod(folder, 0o755)
            with world.Gpurund("--worker", worker, "--spare-workers", "0") as server:
                with open(worker + ".new", "w", encoding="utf-8") as file:
                    file.write("#!/bin/sh\nexit 9\n")
                os.chmod(worker + ".new", 0o755)
                os.rename(worker + ".new", worker)
                program = GpuProgram(server)
                self.assertEqual([name_of(pid) for pid in server.workers()], ["gpurun-worker"])
                self.assertEqual(program.go_on(), ("", ""))
                self.assertEqual(program.run.returncode, 0)

    def test_daemons_with_separate_claims_keep_workers_of_each_other(self):
        uid = 2_000_000_200
        apart = ["unshare", "--mount", "--", "sh", "-c", 'mount -t tmpfs none /run && exec "$@"', "sh"]
        if os.getuid() != 0 or not can_be(uid) or subprocess.run([*apart, "true"], capture_output=True,
                                                                 timeout=world.SECONDS).returncode != 0:
            self.skipTest("needs root in a user namespace that knows the worker's users")
        for confinement in ("full", "none"):
            words = ("--worker-uids", f"{uid}-{uid}", "--confinement", confinement)
            with (self.subTest(confinement=confinement), world.Gpurund(*words, before=apart) as one,
                  world.Gpurund(*words, before=apart) as other):
                held = GpuProgram(one)
                (worker,) = one.workers()
                passing = GpuProgram(other)
                self.assertEqual(world.status_of(other.workers()[0])["Uid"],
                                 world.status_of(worker)["Uid"])
                self.assertEqual(passing.go_on(), ("", ""))
                until(lambda server=other: not server.workers(), "its worker ends")
                self.assertEqual(held.go_on(), ("", ""))

    def test_worker_ends_with_killed_daemon(self):
        for words in ((), ("--worker-uids", "none"),
                      ("--worker-uids", "none", "--confinement", "none")):
            with self.subTest(words=words), world.Gpurund(*words) as server:
                program = GpuProgram(server)
                (worker,) = server.workers()
                server.process.kill()
                until(lambda pid=worker: not alive(pid), "the worker ends")
                program.go_on()
                self.assertEqual(program.run.returncode, DEVICE_UNAVAILABLE)

    def test_worker_gets_only_named_variables(self):
        env = environment(SECRET_OF_THE_OPERATOR="x", GPURUN_SECRET_FILE="/secret", LD_PRELOAD="libm.so.6",
                          GPURUN_LOG="error")
        with world.Gpurund(env=env) as server:
            program = GpuProgram(server)
            (worker,) = server.workers()
            with open(f"/proc/{worker}/environ", encoding="utf-8") as file:
                names = {entry.split("=")[0] for entry in file.read().split("\0") if entry}
            allowed = {"CUDA_VISIBLE_DEVICES", "GPURUN_LOG", "GPURUN_EMULATED", "TMPDIR", "HOME",
                       "XDG_CACHE_HOME", "ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS"}
            self.assertLessEqual(names, allowed)
            self.assertIn("GPURUN_LOG", names)
            program.go_on()

    def test_worker_death_is_reported_and_keeps_lease(self):
        with world.Gpurund(env=environment(**world.crash_kills())) as server:
            program = GpuProgram(server)
            (worker,) = server.workers()
            os.kill(worker, signal.SIGSEGV)
            said = program.run.stderr.readline()
            self.assertRegex(said, r"worker .*died: signal 11 \(Segmentation fault\); the last call was")
            self.assertIsNone(program.run.poll())
            self.assertEqual(program.go_on(), ("", ""))  # It is said once.
            self.assertEqual(program.run.returncode, DEVICE_UNAVAILABLE)
        self.assertRegex(server.errors, "worker ended with signal 11")

    # There a worker's keeper of images becomes its child (pid_namespaces(7)).
    def test_first_process_of_container_leaves_no_zombies(self):
        container = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", "--"]
        why = why_not(container)
        if why:
            self.skipTest(why)
        with world.Gpurund(before=container) as server:
            (daemon,) = world.children(server.process.pid)
            for _ in range(5):
                done = gpurun(*server.options(), "--", world.ARGS.client, "load", "100000")
                self.assertEqual((done.returncode, done.stderr), (0, ""))
            # The keeper of the last run may end after its worker.
            until(lambda: len(zombies_of(daemon)) <= 1, "no zombies but that of the last run")
            os.kill(daemon, signal.SIGTERM)  # unshare(1) passes no signal on.

    def test_runs_can_follow_each_other_at_once(self):
        with world.Gpurund() as server:
            for _ in range(10):
                done = gpurun(*server.options(), "--", world.ARGS.client, "once")
                self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_killed_clients_leave_no_worker_and_no_lease(self):
        with world.Gpurund() as server:
            for _ in range(10):
                program = GpuProgram(server, "--timeout", "30s")
                program.run.kill()
                program.go_on()
                until(lambda: not server.workers(), "the worker ends")
            self.assertEqual(gpurun("--timeout", "10s", *server.options(), "--", "true").returncode, 0)
            descriptors = len(os.listdir(f"/proc/{server.process.pid}/fd"))
            self.assertLess(descriptors, 28)  # Ten runs would have left more.
        self.assertNotIn("worker ended", server.errors)


if __name__ == "__main__":
    world.main()
