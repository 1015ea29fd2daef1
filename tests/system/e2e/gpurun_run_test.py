#!/usr/bin/env python3
"""gpurun as its user sees it: exit statuses, messages, environment and refusals."""
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../support"))
import world  # noqa: E402
from world import environment, gpurun  # noqa: E402


class ExitStatus(unittest.TestCase):
    """gpurun passes the program's exit status on. Its own failures have distinct statuses, as in
    env(1)."""

    def test_program_status_passes_through(self):
        for status in (0, 1, 7, 124, 125, 126, 127, 128, 255):
            done = gpurun("--", "sh", "-c", f"exit {status}")
            self.assertEqual((done.returncode, done.stderr), (status, ""))

    def test_death_by_a_signal_passes_through(self):
        for number in (1, 2, 6, 9, 11, 13, 15):
            self.assertEqual(gpurun("--", "sh", "-c", f"kill -{number} $$").returncode, -number)

    def test_input_and_output_pass_untouched(self):
        with tempfile.TemporaryFile() as file:
            file.write(b"line\0with a nul\n")
            file.seek(0)
            done = subprocess.run([world.GPURUN, "--", "cat"], stdin=file, env=environment(),
                                  capture_output=True, timeout=world.SECONDS)
        self.assertEqual((done.stdout, done.stderr), (b"line\0with a nul\n", b""))

    def test_missing_or_non_executable_program_has_own_status(self):
        done = gpurun("--", "no-such-program")
        self.assertEqual(done.returncode, 127)
        self.assertIn("no-such-program", done.stderr)
        self.assertEqual(gpurun("--", "/no/such/program").returncode, 127)
        self.assertEqual(gpurun("--", "/etc/passwd").returncode, 126)
        self.assertEqual(gpurun("--", "/etc").returncode, 126)

    def test_message_names_missing_interpreter(self):
        with tempfile.TemporaryDirectory() as folder:
            script = os.path.join(folder, "script")
            with open(script, "w", encoding="utf-8") as file:
                file.write("#!/no/such/interpreter\n")
            os.chmod(script, 0o755)
            done = gpurun("--", script)
        self.assertEqual(done.returncode, 127)
        self.assertIn("interpreter", done.stderr)

    def test_script_without_interpreter_line_runs_in_shell(self):
        with tempfile.TemporaryDirectory() as folder:
            script = os.path.join(folder, "script")
            with open(script, "w", encoding="utf-8") as file:
                file.write('echo "$0 $1"; exit 5\n')
            os.chmod(script, 0o755)
            done = gpurun("--", script, "word")
        self.assertEqual((done.returncode, done.stdout), (5, f"{script} word\n"))

    def test_usage_error_names_wrong_word(self):
        for words, named in ((["-n", "none", "--", "true"], "none"), (["-n", "0", "true"], "-n"),
                             (["--nonsense", "--", "true"], "--nonsense"), ([], "no program"),
                             (["-l", "host:port", "true"], "port"), (["-p", "0.5", "true"], "-p"),
                             (["--transport", "pigeon", "true"], "pigeon"),
                             (["--timeout", "5", "true"], "5")):
            done = gpurun(*words)
            self.assertEqual((done.returncode, done.stdout), (125, ""), words)
            self.assertIn(named, done.stderr)

    def test_unknown_log_level_is_refused_before_start(self):
        for words in ([], ["-l", "127.0.0.1:1"]):
            done = gpurun(*words, "--", "echo", "ran", env=environment(GPURUN_LOG="bogus"))
            self.assertEqual((done.returncode, done.stdout), (125, ""))
            self.assertEqual(done.stderr, "gpurun: GPURUN_LOG is 'bogus'; it may be error, warning, "
                                          "info, debug or trace\n")

    def test_help_and_version_go_to_stdout(self):
        self.assertRegex(gpurun("--version").stdout,
                         r"^gpurun \d+\.\d+\.\d+ \(protocol \d+, commit ([0-9a-f]{8}(\+changes)?|unknown)\)\n$")
        self.assertIn("--timeout", gpurun("--help").stdout)


class Environment(unittest.TestCase):
    """The program finds our library in both ways, and keeps everything that the user set."""

    def variables(self, env, *options):
        done = gpurun(*options, "--", "env", "-0", env=env)
        self.assertEqual(done.returncode, 0, done.stderr)
        return dict(entry.split("=", 1) for entry in done.stdout.split("\0") if entry)

    def test_library_paths_precede_user_paths(self):
        there = world.ARGS.client_dir
        env = environment(LD_LIBRARY_PATH="/a:/b", LD_PRELOAD="libm.so.6")
        seen = self.variables(env)
        self.assertEqual(seen["LD_LIBRARY_PATH"], f"{there}:/a:/b")
        self.assertEqual(seen["LD_PRELOAD"], f"{there}/libcuda.so.1:libm.so.6")
        seen = self.variables(environment())
        self.assertEqual(seen["LD_LIBRARY_PATH"], there)
        self.assertEqual(seen["LD_PRELOAD"], f"{there}/libcuda.so.1")

    def test_descendants_load_library(self):
        done = gpurun("--", "sh", "-c", "cat /proc/self/maps")
        self.assertIn(os.path.join(world.ARGS.client_dir, "libcuda.so.1"), done.stdout)

    def test_emulated_device_sets_toolchain_variables(self):
        self.assertNotIn("CUPY_COMPILE_WITH_PTX", self.variables(environment()))
        if not os.path.exists(world.DRIVERS["emulated"]):
            self.skipTest("no emulated device in this build")
        emulated = {"GPURUN_DRIVER": world.DRIVERS["emulated"]}
        self.assertEqual(self.variables(environment(**emulated))["CUPY_COMPILE_WITH_PTX"], "1")
        self.assertEqual(self.variables(environment(**emulated))["CUTE_DSL_LINEINFO"], "1")
        seen = self.variables(environment(CUPY_COMPILE_WITH_PTX="0", **emulated))
        self.assertEqual(seen["CUPY_COMPILE_WITH_PTX"], "0")
        # This test's client folder has no stand-in library. It is found in the program's own
        # folder.
        stand_in = os.path.join(world.ARGS.build, "lib/gpurun/client/libgpurun-nvjitlink.so")
        emulated["GPURUN_CLIENT_DIR"] = os.path.dirname(stand_in)
        self.assertIn(stand_in, self.variables(environment(**emulated))["LD_PRELOAD"].split(":"))
        self.assertNotIn(stand_in, self.variables(
            environment(GPURUN_NVJITLINK="off", **emulated))["LD_PRELOAD"].split(":"))

    def test_option_does_not_override_user_variable(self):
        self.assertEqual(self.variables(environment(), "--stats")["GPURUN_STATS"], "1")
        seen = self.variables(environment(GPURUN_STATS="0"), "--stats")
        self.assertEqual(seen["GPURUN_STATS"], "0")
        self.assertNotIn("GPURUN_STATS", self.variables(environment()))

    def test_session_file_names_server(self):
        done = gpurun("--", "sh", "-c", 'cat "$GPURUN_SESSION"')
        self.assertRegex(done.stdout, r"(?m)^server 127\.0\.0\.1:\d+$")

    def test_nested_run_has_its_own_session_file(self):
        inner = f'{world.GPURUN} -- sh -c \'echo $GPURUN_SESSION\''
        done = gpurun("--", "sh", "-c", f'echo $GPURUN_SESSION; {inner}')
        self.assertEqual(done.returncode, 0, done.stderr)
        outer_file, inner_file = done.stdout.split()
        self.assertNotEqual(outer_file, inner_file)

    def test_program_inherits_no_gpurun_descriptors(self):
        done = gpurun("--", "ls", "/proc/self/fd")
        self.assertEqual(done.stdout.split(), ["0", "1", "2", "3"])  # 3 is the folder.


class CannotBePreloaded(unittest.TestCase):
    """Where our library cannot be loaded, gpurun gives the user the reason before it starts
    anything."""

    def test_static_program_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            program = os.path.join(folder, "static")
            source = os.path.join(folder, "static.c")
            with open(source, "w", encoding="utf-8") as file:
                file.write("int main(void) { return 0; }\n")
            subprocess.run(["cc", "-static", "-o", program, source], check=True)
            done = gpurun("--", program)
        self.assertEqual(done.returncode, 125)
        self.assertIn("statically linked", done.stderr)

    def test_setuid_program_is_refused(self):
        if os.getuid() != 0:
            self.skipTest("only root can make a program setuid to another user")
        with tempfile.TemporaryDirectory() as folder:
            program = os.path.join(folder, "setuid")
            with open("/bin/true", "rb") as original, open(program, "wb") as copy:
                copy.write(original.read())
            os.chown(program, 65534, 65534)
            os.chmod(program, 0o755 | stat.S_ISUID)
            done = gpurun("--", program)
        self.assertEqual(done.returncode, 125)
        self.assertIn("setuid", done.stderr)

    def test_sudo_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            program = os.path.join(folder, "sudo")
            os.symlink("/bin/true", program)
            for before in ([], ["env", "A=1"], ["nohup"]):
                done = gpurun("--", *before, program, "id")
                self.assertEqual(done.returncode, 125)
                self.assertIn("sudo gpurun", done.stderr)

    def test_program_with_file_capabilities_is_refused(self):
        setcap = shutil.which("setcap", path=os.environ["PATH"] + ":/usr/sbin:/sbin")
        if os.geteuid() != 0 or setcap is None or not world.can_be(65534):
            self.skipTest("needs root, setcap, and another user")
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o755)
            program = shutil.copy("/bin/true", folder)
            if subprocess.run([setcap, "cap_net_raw+ep", program], capture_output=True).returncode != 0:
                self.skipTest("this file system keeps no capabilities")
            done = subprocess.run(["setpriv", "--reuid=65534", "--clear-groups", "--", world.GPURUN, "--",
                                   program], env=environment(), capture_output=True, text=True,
                                  timeout=world.SECONDS, stdin=subprocess.DEVNULL)
        self.assertEqual((done.returncode, done.stdout), (125, ""))
        self.assertRegex(done.stderr, "^gpurun: .* has file capabilities: .*setcap -r[^\n]*\n$")

    def compiled(self, folder, name, *options):
        source = os.path.join(folder, "program.c")
        with open(source, "w", encoding="utf-8") as file:
            file.write("int main(void) { return 0; }\n")
        program = os.path.join(folder, name)
        done = subprocess.run(["cc", *options, "-o", program, source], capture_output=True)
        return program if done.returncode == 0 else None

    def test_foreign_libc_processor_and_sanitizer_are_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            musl = self.compiled(folder, "musl", "-Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1")
            programs = {musl: "uses the musl C library"}
            for name, place, byte, said in (("small", 4, 1, "32-bit"), ("other", 18, 40, "another processor")):
                path = shutil.copy(musl, os.path.join(folder, name))
                with open(path, "r+b") as file:
                    file.seek(place)
                    file.write(bytes([byte]))
                programs[path] = said
            asan = self.compiled(folder, "asan", "-fsanitize=address")
            if asan is not None:
                programs[asan] = "ASAN_OPTIONS=verify_asan_link_order=0"
            script = os.path.join(folder, "script")
            with open(script, "w", encoding="utf-8") as file:
                file.write(f"#!{musl}\n")
            os.chmod(script, 0o755)
            programs[script] = "uses the musl C library"
            for program, said in programs.items():
                # Also behind a program that starts it.
                for before in ([], ["env", "A=1"], ["nice", "-n", "1", "timeout", "9", "nohup"]):
                    done = gpurun("--", *before, program, env=environment(ASAN_OPTIONS=None))
                    self.assertEqual((done.returncode, done.stdout), (125, ""), (before, program))
                    self.assertRegex(done.stderr, f"^gpurun: [^\n]*{said}[^\n]*\n$")

    def test_env_i_is_refused(self):
        for words in (["env", "-i"], ["nice", "env", "-", "PATH=/bin"]):
            done = gpurun("--", *words, "true")
            self.assertEqual((done.returncode, done.stdout), (125, ""))
            self.assertRegex(done.stderr, "^gpurun: env -i drops .*write it before gpurun: [^\n]*\n$")

    def test_missing_client_library_is_reported(self):
        done = gpurun("--", "true", env=environment(GPURUN_CLIENT_DIR="/no/such/folder"))
        self.assertEqual(done.returncode, 125)
        self.assertIn("/no/such/folder/libcuda.so.1", done.stderr)


if __name__ == "__main__":
    world.main()
