"""Perftest: the programs of the package perftest between the two RDMA devices of a guest, with a server on
rxb and a client on rxa."""
import contextlib
import itertools
import os
import re
import subprocess
import tempfile
import time

import faults

FAR = "10.78.0.2"  # Of rxb (network_pair.sh).
SECONDS = 120
COMMON = ("-F", "-x", "1")  # GID 1: RoCE v2 with IPv4. -F: the processor's frequency may change.
TYPICAL_US = 4  # Of a latency: half a round trip.
AVERAGE_MB_S = 3  # Of a bandwidth.
PORTS = itertools.count(18515)
# Errors of a program: its peer does not answer (IBV_WC_RETRY_EXC_ERR), and its own device cannot send
# (IBV_WC_LOC_QP_OP_ERR).
RETRY_EXCEEDED, CANNOT_SEND = "status 12", "status 2"
# Options of a connection that ends when its peer does not answer. Without them it waits forever, because
# perftest retries 7 times, which rxe takes for no bound. With rdma_cm each try takes 2.2 s.
FINITE = ("-R", "--retry_count=2")
STARTED = 100  # Packets, more than a connection takes to begin.


def resources(kind):
    """The kernel's list of all RDMA objects of a kind."""
    return subprocess.run(["rdma", "resource", "show", kind], check=True, capture_output=True, text=True,
                          timeout=SECONDS).stdout


def listens(port):
    """Whether a program listens on the port, on TCP or by rdma_cm."""
    for name in ("tcp", "tcp6"):
        with open(f"/proc/net/{name}", encoding="utf-8") as file:
            if re.search(rf"(?m)^ *\d+: [0-9A-F]+:{port:04X} \S+ 0A ", file.read()):
                return True
    return re.search(rf"(?m)state LISTEN .*:{port} *$", resources("cm_id")) is not None


def until(condition, what, seconds=SECONDS):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"never came true: {what}")
        time.sleep(0.05)


class Pair:
    """A server and a client of one program, such as ib_send_lat. The end of `with` ends both."""

    def __init__(self, tool, *words):
        port, self.outputs = str(next(PORTS)), {}
        self.received = faults.rdma_counter("rxb", "rcvd_pkts")
        self.folder = tempfile.TemporaryDirectory()
        self.server = self.start("server", [tool, "-d", "rxb", *COMMON, *words, "-p", port])
        try:
            until(lambda: listens(int(port)) or self.server.poll() is not None, f"{tool} listens")
            self.client = self.start("client", [tool, "-d", "rxa", *COMMON, *words, "-p", port, FAR])
        except BaseException:
            self.server.kill()
            self.server.wait()
            raise

    def start(self, name, command):
        with open(self.path(name), "wb") as output:
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def said(self, name="client"):
        if name in self.outputs:
            return self.outputs[name]
        with open(self.path(name), encoding="utf-8", errors="replace") as file:
            return file.read()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in (self.client, self.server):
            process.kill()  # Nothing, where it has ended.
            process.wait(SECONDS)  # The kernel ends its connections first.
        self.outputs = {name: self.said(name) for name in ("client", "server")}
        self.folder.cleanup()

    def status(self, seconds=SECONDS):
        """The client's exit status at its end. Fails when it does not come in time."""
        try:
            return self.client.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"no end after {seconds} s: {self.said()}") from None

    def fails(self, *errors):
        """Waits until the client has printed one of the errors. Its end can take a minute more, in which
        rdma_cm tries to take leave of its peer."""
        def printed():
            return any(error in self.said() for error in errors)
        until(lambda: printed() or self.client.poll() is not None, "the client fails")
        if not printed():
            raise AssertionError(self.said())

    def sends(self):
        """Waits until messages arrive. Returns False when the client ends before."""
        def arrive():
            return faults.rdma_counter("rxb", "rcvd_pkts") - self.received > STARTED
        until(lambda: arrive() or self.client.poll() is not None, "messages arrive")
        return self.client.poll() is None


def tries(words):
    """How often a pair may try to connect. With rdma_cm (-R) a client can meet a listener that the kernel
    does not serve yet, and perftest's ends can exchange their numbers before the other one is ready."""
    return 5 if "-R" in words else 1


@contextlib.contextmanager
def sending(tool, *words):
    """A pair that sends messages."""
    for _ in range(tries(words)):
        with Pair(tool, *words) as pair:
            if pair.sends():
                yield pair
                return
    raise AssertionError(f"{tool}: {pair.said()}\nserver: {pair.said('server')}")


def figures(output):
    """The numbers of the program's last row. TYPICAL_US and AVERAGE_MB_S are places in it."""
    return [float(word) for word in re.findall(r"(?m)^ #bytes .*\n +(.+)$", output)[-1].split()]


def result(tool, *words):
    """Runs the program to its end and returns its figures. Fails when it fails."""
    for _ in range(tries(words)):
        with Pair(tool, *words) as pair:
            if pair.status() == 0:
                return figures(pair.said())
    raise AssertionError(f"{tool}: {pair.said()}\nserver: {pair.said('server')}")
