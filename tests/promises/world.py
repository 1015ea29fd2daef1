"""What the tests of this folder share: a server, runs through gpurun, and a wire with a delay."""
import collections
import json
import os
import select
import socket
import subprocess
import tempfile
import threading
import time

START_DEADLINE_S = 90
DRIVERS = {"emulated": "lib/gpurun/emulated/libcuda.so.1", "null": "tests/devices/null/libcuda.so.1"}


def clean_environment():
    return {k: v for k, v in os.environ.items() if not k.startswith("GPURUN_")}


def words_for_users():
    """A root that cannot become the workers' users, in a container, must say so."""
    if os.geteuid() != 0:
        return []
    able = subprocess.run(["setpriv", "--reuid", "2000004095", "--clear-groups", "true"],
                          stderr=subprocess.DEVNULL).returncode == 0
    return [] if able else ["--worker-uids", "none"]


class Server:
    """gpurund on a free loopback port; `with` ends it. Its log is in `log_path`."""

    def __init__(self, build, folder, driver="emulated", environment=None):
        self.build, self.folder = build, folder
        self.secret_file = os.path.join(folder, "secret")
        with open(os.open(self.secret_file, os.O_CREAT | os.O_WRONLY, 0o600), "w") as file:
            file.write(os.urandom(24).hex())
        self.log_path = os.path.join(folder, "gpurund.log")
        ready, announce = os.pipe()
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(
                [os.path.join(build, "bin/gpurund"), "--listen", "127.0.0.1:0", "--driver",
                 os.path.join(build, DRIVERS[driver]), "--secret-file", self.secret_file,
                 "--cache", os.path.join(folder, "cache"), "--ready-fd", str(announce),
                 *words_for_users()],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=[announce],
                env={**clean_environment(), **(environment or {})})
        os.close(announce)
        if not select.select([ready], [], [], START_DEADLINE_S)[0]:
            raise TimeoutError("gpurund does not say where it listens")
        self.address = os.read(ready, 300).decode().strip()
        os.close(ready)
        if not self.address:
            self.process.wait(10)
            raise RuntimeError("gpurund ended: " + self.log())

    def log(self):
        with open(self.log_path, errors="replace") as file:
            return file.read()

    def port(self):
        return int(self.address.rsplit(":", 1)[1])

    def workers(self):
        """Process ids of its workers that live (zombies are not alive)."""
        return [pid for pid in children(self.process.pid)]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


def children(parent):
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat") as file:
                fields = file.read().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[1]) == parent and fields[0] != "Z":
            found.append(int(name))
    return found


def gpurun_command(build, server, command, address=None, options=()):
    return [os.path.join(build, "bin/gpurun"), "-q", "-l", address or server.address, *options, "--",
            *command]


def gpurun_environment(server, extra=None):
    # What clients keep is the test's own.
    return {**clean_environment(), "GPURUN_SECRET_FILE": server.secret_file,
            "XDG_CACHE_HOME": os.path.join(server.folder, "client-cache"), **(extra or {})}


def holdings(build, server):
    """What gpurund says of itself: leases, sessions, workers, strangers, and who holds which GPU."""
    done = subprocess.run([os.path.join(build, "bin/gpuctl"), "list", "--json", "-l", server.address],
                          env=gpurun_environment(server), capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        raise RuntimeError("gpuctl: " + done.stderr)
    return json.loads(done.stdout)


Run = collections.namedtuple("Run", "status stdout stderr seconds statistics")


def run(build, server, command, address=None, timeout=120, environment=None):
    """One run through gpurun, with its statistics (one entry for each process of it)."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "statistics")
        start = time.monotonic()
        done = subprocess.run(
            gpurun_command(build, server, command, address), stdin=subprocess.DEVNULL,
            env=gpurun_environment(server, {"GPURUN_STATS": "1", "GPURUN_STATS_FILE": path,
                                            **(environment or {})}),
            capture_output=True, text=True, errors="replace", timeout=timeout)
        seconds = time.monotonic() - start
        statistics = []
        if os.path.exists(path):
            with open(path) as file:
                statistics = [json.loads(line) for line in file]
    return Run(done.returncode, done.stdout, done.stderr, seconds, statistics)


def eventually(condition, seconds=20):
    """Whether `condition` comes true in time; asks again often."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


class DelayProxy:
    """A TCP relay that keeps each byte half of `round_trip_s` in either direction."""

    def __init__(self, port, round_trip_s):
        self.target, self.delay = ("127.0.0.1", port), round_trip_s / 2
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.close()

    def _accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, near):
        # A connection costs a round trip before its first byte: connect() to us costs none.
        far = socket.create_connection(self.target)
        for connection in (near, far):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=self._relay, args=(near, far, 2 * self.delay), daemon=True).start()
        threading.Thread(target=self._relay, args=(far, near, 0), daemon=True).start()

    def _relay(self, source, sink, first_delay):
        """Reads at once and writes each piece when its time has come. `first_delay` stands for the
        handshake that a real link would have had: it holds up what the client says first."""
        pieces, wake = collections.deque(), threading.Condition()
        opened = time.monotonic() + first_delay

        def write():
            while True:
                with wake:
                    while not pieces:
                        wake.wait()
                    due, data = pieces.popleft()
                time.sleep(max(0.0, due - time.monotonic()))
                try:
                    if not data:
                        sink.shutdown(socket.SHUT_WR)
                        return
                    sink.sendall(data)
                except OSError:
                    return

        threading.Thread(target=write, daemon=True).start()
        data = True
        while data:
            try:
                data = source.recv(1 << 18)
            except OSError:
                data = b""
            with wake:
                pieces.append((max(time.monotonic(), opened) + self.delay, data))
                wake.notify()
