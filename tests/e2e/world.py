"""What the end-to-end tests share: gpurun and gpurund as processes, and a look at what is left."""
import argparse
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
import unittest

SECONDS = 30  # No single step takes so long on a busy machine.


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    parser.add_argument("--driver", required=True)
    parser.add_argument("--client-dir", required=True)
    parser.add_argument("--client", required=True, help="gpu_client")
    parser.add_argument("--sanitizer", default="", help="of the build: address, thread, or none")
    args, rest = parser.parse_known_args()
    sys.argv[1:] = rest
    return args


ARGS = parse()
GPURUN = os.path.join(ARGS.build, "bin/gpurun")
GPURUND = os.path.join(ARGS.build, "bin/gpurund")


def environment(**changes):
    env = {k: v for k, v in os.environ.items()
           if not k.startswith("GPURUN_") and k not in ("LD_PRELOAD", "LD_LIBRARY_PATH")}
    # What this user's programs have kept must not change what a test sees.
    env.update(GPURUN_DRIVER=ARGS.driver, GPURUN_CLIENT_DIR=ARGS.client_dir, GPURUN_CACHE="off")
    for name, value in changes.items():
        if value is None:
            env.pop(name, None)
        else:
            env[name] = value
    return env


def crash_kills():
    """For environment(): a sanitizer, where there is one, leaves SIGSEGV to the kernel."""
    return {name: os.environ.get(name, "") + ":handle_segv=0"
            for name in ("ASAN_OPTIONS", "TSAN_OPTIONS", "UBSAN_OPTIONS")}


def gpurun(*words, env=None, **options):
    """Runs gpurun to its end."""
    return subprocess.run([GPURUN, *words], env=env or environment(), capture_output=True,
                          text=True, timeout=SECONDS, stdin=subprocess.DEVNULL, **options)


def start(*words, env=None, **options):
    return subprocess.Popen([GPURUN, *words], env=env or environment(), stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, **options)


def until(condition, what):
    """Waits until the condition holds; there is nothing to wait on that would tell."""
    end = time.monotonic() + SECONDS
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"never came true: {what}")
        select.select([], [], [], 0.01)


def stat_fields(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return None


def alive(pid):
    fields = stat_fields(pid)
    return fields is not None and fields[0] not in "ZX"


def children(pid):
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            fields = stat_fields(entry)
            if fields is not None and int(fields[1]) == pid and fields[0] not in "ZX":
                found.append(int(entry))
    return found


def name_of(pid):
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return ""


def server_of(gpurun_pid):
    for child in children(gpurun_pid):
        if name_of(child) == "gpurund":
            return child
    return None


def can_be(uid):
    child = os.fork()
    if child == 0:
        try:
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
        except OSError:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def can_lend_users():
    """Whether a gpurund that is told nothing can give its workers users of their own."""
    return os.geteuid() != 0 or (can_be(2_000_000_000) and can_be(2_000_004_095))


class Gpurund:
    """A server of a test's own, on a port that the kernel chose; `cache` None: where it likes.
    `before`: words that start it, such as unshare(1)'s."""

    def __init__(self, *words, secret="a secret of this test", env=None, cache="", before=()):
        if "--worker-uids" not in words and "--config" not in words and not can_lend_users():
            words += ("--worker-uids", "none")
        self.folder = tempfile.TemporaryDirectory()
        if cache is not None:
            words += ("--cache", cache or os.path.join(self.folder.name, "cache"))
        self.secret_file = os.path.join(self.folder.name, "secret")
        descriptor = os.open(self.secret_file, os.O_WRONLY | os.O_CREAT, 0o600)
        os.write(descriptor, secret.encode())
        os.close(descriptor)
        reading, writing = os.pipe()
        os.set_inheritable(writing, True)
        self.process = subprocess.Popen(
            [*before, GPURUND, *(() if "--listen" in words else ("--listen", "127.0.0.1:0")), "--driver",
             ARGS.driver, "--secret-file", self.secret_file, "--ready-fd", str(writing), *words],
            env=env or environment(), pass_fds=[writing], stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE, text=True)
        os.close(writing)
        with os.fdopen(reading, encoding="utf-8") as ready:
            self.address = ready.readline().strip()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        if self.process.poll() is None:
            self.process.terminate()
        try:
            self.errors = self.process.communicate(timeout=SECONDS)[1]
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        finally:
            self.folder.cleanup()

    def options(self):
        return ["-l", self.address, "--secret-file", self.secret_file]


def main():
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    unittest.main(verbosity=2)
