"""Both: runs a case of process_program natively on the emulated device and through gpurun, and
compares exit status and output. One gpurund serves all cases of a test file."""
import contextlib
import os
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../support"))
import world  # noqa: E402

FOLDER = os.path.join(world.ARGS.build, "tests/system/process")
PROGRAM = os.path.join(FOLDER, "process_program")
LOADER = os.path.join(FOLDER, "process_loader")
PLUGIN = os.path.join(FOLDER, "libprocess_plugin.so")
NOT_INSTRUMENTED = "a library with a sanitizer enters only programs with one"
SECONDS = world.SECONDS * (4 if world.ARGS.sanitizer else 1)
GONE = r"is gone: .*\. Every CUDA call fails from now on with CUDA_ERROR_DEVICE_UNAVAILABLE\.$"


@contextlib.contextmanager
def script(text):
    """Yields the path of a file with a program in Python."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "script.py")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        yield path


def unreported_signals():
    """For `env`: a sanitizer reports nothing about a program that ends by a signal."""
    return {name: os.environ.get(name, "") + ":handle_segv=0:handle_abort=0"
            for name in ("ASAN_OPTIONS", "TSAN_OPTIONS", "UBSAN_OPTIONS")}


def unchecked_leaks():
    """For `env`: a child lacks the threads with the stacks that a leak check would search."""
    return {"ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0:handle_abort=0"}


def native_environment(**changes):
    driver = os.path.dirname(world.DRIVERS["emulated"])
    given = changes.pop("LD_LIBRARY_PATH", None)
    return world.environment(LD_LIBRARY_PATH=":".join(filter(None, [driver, given])),
                             GPURUN_DRIVER=None, GPURUN_CLIENT_DIR=None, **changes)


class Case(unittest.TestCase):
    """Cases that both() compares."""

    @classmethod
    def setUpClass(cls):
        cls.server = world.Gpurund()

    @classmethod
    def tearDownClass(cls):
        cls.server.__exit__(None, None, None)

    def forwarded(self, *command, before=(), env=None, **options):
        return subprocess.run(
            [*before, world.GPURUN, "-q", *self.server.options(), "--", *command],
            env=world.environment(**(env or {})), capture_output=True, text=True, errors="replace",
            timeout=options.pop("timeout", SECONDS), stdin=subprocess.DEVNULL, **options)

    def native(self, *command, before=(), env=None, **options):
        return subprocess.run(
            [*before, *command], env=native_environment(**(env or {})), capture_output=True, text=True,
            errors="replace", timeout=options.pop("timeout", SECONDS), stdin=subprocess.DEVNULL,
            **options)

    def both(self, *command, status=0, said=None, messages=None, **options):
        """Status and output agree, equal `status` and, if given, match `said`. On stderr gpurun
        prints nothing, or one line for each pattern of `messages` in any order."""
        native = self.native(*command, **options)
        forwarded = self.forwarded(*command, **options)
        what = f"{command}: {native.stdout}{native.stderr} / {forwarded.stdout}{forwarded.stderr}"
        self.assertEqual((native.returncode, native.stdout), (forwarded.returncode, forwarded.stdout),
                         what)
        self.judge(forwarded, what, status, said, messages)
        return forwarded

    def judge(self, done, what, status=0, said=None, messages=None):
        self.assertEqual(done.returncode, status, what)
        if said is not None:
            self.assertRegex(done.stdout, said, what)
        lines = done.stderr.splitlines()
        wanted = list(messages or ())
        for pattern in wanted:
            self.assertEqual(len([line for line in lines if re.search(pattern, line)]), 1, what)
        self.assertEqual(len(lines), len(wanted), what)

    def nothing_left(self):
        """This server has no worker and no lease left."""
        world.until(lambda: not self.server.workers(), "the workers end")
        world.until(lambda: world.holdings(self.server)["leases"] == 0, "the leases end")


def main():
    world.main()
