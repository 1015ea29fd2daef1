#!/usr/bin/env python3
"""Programs in which our library was loaded in various ways, which change their environment, folder
and root, or which a debugger controls. They compute, or report why they cannot."""
import glob
import os
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(__file__))
import both  # noqa: E402
import world  # noqa: E402
from both import LOADER, PLUGIN, PROGRAM  # noqa: E402

OUT_OF_SIGHT = r"^gpurun: error: no CUDA device can be used: .*out of sight here \(chroot"


def allocators():
    return sorted({os.path.realpath(path) for name in ("libjemalloc.so*", "libtcmalloc_minimal.so*")
                   for path in glob.glob(f"/usr/lib/*-linux-gnu/{name}")})


class Loading(both.Case):
    def test_library_works_after_repeated_dlopen(self):
        for name in ("libcuda.so.1", "libcuda.so"):
            self.both(LOADER, name, "4", said="(result 0\n){4}PASSED")
        self.both(PROGRAM, "plugin_again", PLUGIN, said="PASSED")
        # A plugin that outlives main() frees in its destructor.
        self.both(LOADER, PLUGIN, "0", said="PASSED")
        self.nothing_left()

    def test_program_works_without_preload(self):
        if world.ARGS.sanitizer:
            self.skipTest(both.NOT_INSTRUMENTED)
        done = self.forwarded("env", "--unset=LD_PRELOAD", PROGRAM, "work")
        self.judge(done, done, said="PASSED")

    def test_program_works_with_loader_and_allocator_settings(self):
        for env in ({"LD_BIND_NOW": "1"}, {"MALLOC_PERTURB_": "165"}, {"MALLOC_ARENA_MAX": "1"},
                    {"LC_ALL": "tr_TR.UTF-8", "TZ": "Asia/Kathmandu"}, {"LD_PRELOAD": "libm.so.6"}):
            if "LD_PRELOAD" in env and world.ARGS.sanitizer:
                continue
            self.both(PROGRAM, "work", said="PASSED", env=env)

    def test_program_works_with_other_allocators(self):
        if world.ARGS.sanitizer:
            self.skipTest(both.NOT_INSTRUMENTED)
        if not allocators():
            self.skipTest("neither jemalloc nor tcmalloc is here")
        for library in allocators():
            self.both(PROGRAM, "fork_from_a_thread", "10", said="PASSED", env={"LD_PRELOAD": library})

    def test_program_works_after_clearing_environment(self):
        self.both(PROGRAM, "environment_cleared", said="PASSED")

    def test_program_works_without_folder_or_standard_descriptors(self):
        if world.ARGS.sanitizer:
            self.skipTest(both.NOT_INSTRUMENTED)
        self.both(PROGRAM, "folder_removed", said="PASSED")
        for closed in ("<&-", "2>&-", "<&- 2>&-"):
            self.both("sh", "-c", f'exec "$@" {closed}', "sh", PROGRAM, "work", said="PASSED")

    def test_program_works_below_scripts_and_interpreters(self):
        if world.ARGS.sanitizer:
            self.skipTest(both.NOT_INSTRUMENTED)
        for words in (("sh", "-c", '"$1" work && "$1" work', "sh", PROGRAM), ("env", "X=1", PROGRAM, "work"),
                      ("nice", "-n", "1", "timeout", "60", PROGRAM, "work"),
                      (sys.executable, "-c", "import subprocess, sys; subprocess.run(sys.argv[1:])",
                       PROGRAM, "work")):
            self.both(*words, said="PASSED")


class Namespaces(both.Case):
    """The session file, or the server, is not visible."""

    def explained(self, *words, messages):
        done = self.forwarded(*words)
        if "FAILED" not in done.stdout and "result" not in done.stdout:
            self.fail(f"{words}: {done}")
        self.judge(done, done, status=done.returncode, messages=messages)

    def test_chroot_hides_session_only_before_first_call(self):
        if world.ARGS.sanitizer:
            self.skipTest("a sanitizer opens its report by name")
        if os.geteuid() != 0:
            self.skipTest("only root can change its root")
        with tempfile.TemporaryDirectory() as folder:
            self.explained(PROGRAM, "another_root", folder, messages=[OUT_OF_SIGHT])
            self.both(PROGRAM, "another_root", folder, "after", said="computed")

    def test_user_and_network_namespaces_report_reason(self):
        if world.ARGS.sanitizer:
            self.skipTest(both.NOT_INSTRUMENTED)
        unshare = ["unshare", "--map-root-user"]
        if subprocess.run([*unshare, "true"], capture_output=True).returncode != 0:
            self.skipTest("needs user namespaces")
        if os.geteuid() == 0:
            self.both("unshare", "--mount", PROGRAM, "work", said="PASSED")
        # A process in another user namespace may not look into gpurun's process.
        self.explained(*unshare, PROGRAM, "work", messages=[OUT_OF_SIGHT])
        self.explained(*unshare, "--pid", "--fork", "--mount-proc", PROGRAM, "work",
                       messages=[OUT_OF_SIGHT])
        if os.geteuid() == 0:
            self.explained("unshare", "--net", PROGRAM, "work",
                           messages=["^gpurun: error: no CUDA device .*Network is unreachable"])


class Debuggers(both.Case):
    """By tools that run the program under their control."""

    def test_program_works_below_gdb_strace_and_valgrind(self):
        if world.ARGS.sanitizer:
            self.skipTest(both.NOT_INSTRUMENTED)
        ran = False
        for words in (("gdb", "-batch", "-nx", "-iex", "set debuginfod enabled off", "-ex", "run",
                       "--args"), ("strace", "-f", "-o", "/dev/null"), ("valgrind", "-q")):
            if shutil.which(words[0]) is None:
                continue
            ran = True
            done = self.forwarded(*words, PROGRAM, "work", timeout=4 * both.SECONDS)
            self.assertEqual(done.returncode, 0, done)
            self.assertIn("PASSED", done.stdout, done)
        if not ran:
            self.skipTest("neither gdb, strace nor valgrind is here")


if __name__ == "__main__":
    both.main()
