"""TLS ends: servers with TLS, strangers that say anything, programs that attach with given values, and
programs with a relay before the server that alters a hello."""
import os
import socket
import subprocess
import tempfile

import world
from world import environment, gpurun, until

# TLS alerts.
ACCESS_DENIED, DECRYPT_ERROR, UNKNOWN_KEY = 49, 51, 115
NO_FINGERPRINT = "sha256:" + "0" * 64
FIRST_WORD = b"gpurun session 1"  # Of the name of a session's key.


class Server(world.Gpurund):
    """A server that uses TLS also within its machine, with its own certificate."""

    def __init__(self, *words, changes=None, **options):
        self.state = tempfile.TemporaryDirectory()
        super().__init__("--tls", *words, **options,
                         env=environment(STATE_DIRECTORY=self.state.name, **(changes or {})))

    def __exit__(self, *exc):
        try:
            super().__exit__(*exc)
        finally:
            self.state.cleanup()


class Plain(world.Gpurund):
    """A server on loopback without TLS options."""


def fingerprint_of(state):
    return subprocess.run([world.GPURUND, "--fingerprint"], env=environment(STATE_DIRECTORY=state),
                          capture_output=True, text=True, check=True,
                          timeout=world.SECONDS).stdout.strip()


def connected(server):
    to = socket.create_connection(("127.0.0.1", server.port()), timeout=world.SECONDS)
    return to


def answer(server, said):
    """All that the server sends until it closes the connection. Empty when it only closes it."""
    with connected(server) as to:
        to.sendall(said)
        heard = b""
        while True:
            try:
                more = to.recv(4096)
            except ConnectionResetError:
                return heard
            if not more:
                return heard
            heard += more


def hung_up(stranger):
    """Returns whether the server has closed the connection. Discards its earlier bytes."""
    stranger.setblocking(False)
    try:
        while stranger.recv(4096):
            pass
        return True
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


def alert(code):
    return bytes((21, 3, 3, 0, 2, 2, code))


def record_bytes(said):
    return 5 + int.from_bytes(said[3:5], "big")


def first_record(said):
    return said[:record_bytes(said)]


class AlteredHellos:
    """Change function of a Relay, which flips a bit of each session's name or of its proof. A hello
    is one record. The name of the key is in its last extension, and the binder that proves it comes
    after that, at the record's end (RFC 8446, 4.2.11). It holds the record back until all of it has
    come, in however many pieces."""

    NAMES = {"lease": 0, "ticket": 16, "session": 32}  # Offsets behind FIRST_WORD.

    def __init__(self, field):
        self.field = field
        self.held = {}

    def __call__(self, number, from_client, passed, data):
        if not from_client or passed:
            return data
        said = self.held[number] = self.held.get(number, b"") + data
        if len(said) < 5 or len(said) < record_bytes(said):
            return b""
        hello = first_record(said)
        name = hello.find(FIRST_WORD)
        if name < 0:
            return said
        place = len(hello) - 1
        if self.field in self.NAMES:
            place = name + len(FIRST_WORD) + self.NAMES[self.field]
        return said[:place] + bytes((said[place] ^ 1,)) + said[place + 1:]


class Holder:
    """A program that holds a context through `relay` until it is told to go on."""

    def __init__(self, server, address, home):
        self.run = subprocess.Popen(
            [world.GPURUN, "--tls", "--secret-file", server.secret_file, "-l", address, "--",
             world.ARGS.client, "wait"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, env=environment(XDG_CONFIG_HOME=home), text=True)
        said = self.run.stdout.readline()
        assert said == "ready\n", said + self.run.communicate(timeout=world.SECONDS)[1]

    def go_on(self):
        out, errors = self.run.communicate("\n", timeout=world.SECONDS)
        return self.run.returncode, out, errors

    def session(self):
        return session_of(self.run.pid)


def session_of(gpurun_pid):
    """The values with which the program of a run attaches: name -> value, as
    client/attach/session_data.cc writes them."""
    for pid in [gpurun_pid, *world.children(gpurun_pid)]:
        with open(f"/proc/{pid}/environ", encoding="utf-8") as file:
            for entry in file.read().split("\0"):
                if entry.startswith("GPURUN_SESSION="):
                    with open(entry.partition("=")[2], encoding="ascii") as data:
                        return dict(line.split(" ", 1) for line in data.read().splitlines()[1:])
    raise LookupError("its program has no session")


def attach_with(session, folder):
    """Runs a program that attaches with these values, without a gpurun around it."""
    path = os.path.join(folder, "session")
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="ascii") as file:
        file.write("gpurun session 1\n" + "".join(f"{name} {value}\n" for name, value in session.items()))
    return subprocess.run([world.ARGS.client, "once"], capture_output=True, text=True, check=False,
                          timeout=2 * world.SECONDS,
                          env=environment(GPURUN_SESSION=path, LD_LIBRARY_PATH=world.ARGS.client_dir))


class TlsRuns:
    """For a TestCase: runs programs, with a home folder of their own."""

    def setUp(self):
        self.home = tempfile.TemporaryDirectory()
        self.addCleanup(self.home.cleanup)

    def run_program(self, server, *words, address=None, program=None, tls=("--tls",)):
        return gpurun(*tls, *words, "--secret-file", server.secret_file, "-l",
                      address or server.address, "--", *(program or [world.ARGS.client, "once"]),
                      env=environment(XDG_CONFIG_HOME=self.home.name))

    def assert_open_for_honest(self, server):
        done = self.run_program(server)
        self.assertEqual(done.returncode, 0, done.stderr)
        until(lambda: not server.workers(), "its worker ends")


def audited(server):
    with open(server.audit_file, encoding="utf-8") as file:
        return file.read()
