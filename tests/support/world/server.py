"""Server: a gpurund of a test."""
import os
import select
import subprocess
import tempfile

from .arguments import ARGS, GPURUND, SECONDS
from .processes import alive, can_lend_users, children, is_spare, name_of, until
from .run import environment
from .transports import ANY, TRANSPORTS

# Threads of an idle gpurund: its loop, the thread that closes connections, and the one that watches
# the users' tokens. ThreadSanitizer adds one.
THREADS_ALONE = "4" if ARGS.sanitizer == "thread" else "3"


class Gpurund:
    """A gpurund on a port that the kernel chose. The end of `with` ends it. `cache` None: the
    default folder. Its `address` is empty when it ended in place of serving. `errors` is its
    stderr, once it has ended. `before`: words that start it, such as unshare(1)'s. Without
    `with_secret` it is given no secret, and makes one for its run. `over`: the transport of its
    sessions (transports.py). The default is --transport, and without that nothing checks it.
    `program`: a gpurund of another build."""

    def __init__(self, *words, secret=None, with_secret=True, driver=None, env=None, cache="",
                 before=(), over=ARGS.transport, program=GPURUND):
        self.transport = TRANSPORTS[over] if over else ANY
        words += self.transport.words
        if "--worker-uids" not in words and "--config" not in words and not can_lend_users():
            words += ("--worker-uids", "none")
        if ARGS.sanitizer and "--spare-workers" not in words and "--config" not in words:
            words += ("--spare-workers", "0")  # There each takes a second of a processor to start.
        self.folder = tempfile.TemporaryDirectory()
        if cache is not None:
            words += ("--cache", cache or os.path.join(self.folder.name, "cache"))
        self.tokens_file = os.path.join(self.folder.name, "state", "tokens")
        self.audit_file = os.path.join(self.folder.name, "audit")
        if "--config" not in words and "--tokens" not in words:
            words += ("--tokens", self.tokens_file, "--audit", self.audit_file)
        self.secret_file = os.path.join(self.folder.name, "secret")
        self.secret_options = ["--secret-file", self.secret_file] if with_secret else []
        if with_secret:
            descriptor = os.open(self.secret_file, os.O_WRONLY | os.O_CREAT, 0o600)
            os.write(descriptor, (secret or os.urandom(24).hex()).encode())
            os.close(descriptor)
        self.log_path = os.path.join(self.folder.name, "gpurund.log")
        reading, writing = os.pipe()
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(
                [*before, program, *(() if "--listen" in words else ("--listen", "127.0.0.1:0")),
                 "--driver", driver or ARGS.driver, *self.secret_options, "--ready-fd",
                 str(writing), *words],
                env=env or environment(STATE_DIRECTORY=os.path.join(self.folder.name, "state")),
                pass_fds=[writing], stdin=subprocess.DEVNULL, stderr=log)
        os.close(writing)
        with os.fdopen(reading, encoding="utf-8") as ready:
            if not select.select([ready], [], [], 3 * SECONDS)[0]:
                self.process.kill()
                raise TimeoutError("gpurund does not say where it listens: " + self.log())
            self.address = ready.readline().strip()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        if self.process.poll() is None:
            self.process.terminate()
        try:
            self.process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        finally:
            self.errors = self.log()
            until(self.cleaned, "its folder can be removed")

    def cleaned(self):
        """Its folder has gone. A process that stores images outlives it for a moment, and may still
        write there."""
        try:
            self.folder.cleanup()
        except OSError:
            return False
        return True

    def log(self):
        with open(self.log_path, encoding="utf-8", errors="replace") as file:
            return file.read()

    def options(self):
        return ["-l", self.address, *self.secret_options]

    def port(self):
        return int(self.address.rsplit(":", 1)[1])

    def workers(self):
        """Process ids of its live workers that have a lease, or had one."""
        return [pid for pid in self.all_workers() if not is_spare(pid) and alive(pid)]

    def spares(self):
        """Process ids of the workers that wait for a lease."""
        return [pid for pid in self.all_workers() if is_spare(pid)]

    def all_workers(self):
        return [pid for pid in children(self.process.pid) if name_of(pid) == "gpurun-worker"]
