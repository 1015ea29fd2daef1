#!/usr/bin/env python3
"""The front `bitfusion`: each form that Bitfusion's users write becomes the right command of gpurun or
gpuctl, what does not exist is refused with a sentence, and signals and exit statuses are the program's.
The health checks fail for what is broken, name the remedy, and pass otherwise."""
import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../support"))
import world  # noqa: E402
from world import environment, until  # noqa: E402

FRONT = os.path.abspath(sys.argv.pop())
# Places of servers that belong to this machine and not to the test.
OF_THIS_MACHINE = [path for path in ("/etc/gpurun/servers", "/etc/bitfusion/servers.conf")
                   if os.path.exists(path)]
SHELLS = [shell for shell in (["sh"], ["dash"], ["bash", "--posix"], ["busybox", "sh"], ["zsh", "--emulate", "sh"])
          if shutil.which(shell[0])]
# Prints its words, one a line, in the place of gpurun and gpuctl.
PRINTS_WORDS = '#!/bin/sh\nprintf "%s\\n" "${0##*/}" "$@"\n'


def unused_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


class Fronted(unittest.TestCase):
    """An installed tree with the front in it: PREFIX/bin and PREFIX/lib/gpurun/client."""

    def setUp(self):
        self.stack = contextlib.ExitStack()
        self.addCleanup(self.stack.close)
        self.folder = os.path.realpath(self.stack.enter_context(tempfile.TemporaryDirectory()))
        self.prefix, self.home = os.path.join(self.folder, "prefix"), os.path.join(self.folder, "home")
        os.makedirs(os.path.join(self.prefix, "bin"))
        os.makedirs(os.path.join(self.home, ".bitfusion"))
        self.front = os.path.join(self.prefix, "bin/gpurun-bitfusion")
        shutil.copy(FRONT, self.front)
        self.env = self.variables(GPURUN_SERVERS="none")

    def variables(self, **changes):
        """Those of a user with a home of the test's own."""
        return environment(**{"HOME": self.home, "XDG_CONFIG_HOME": None, "GPURUN_SERVERS": None,
                              "XDG_RUNTIME_DIR": self.folder, "TMPDIR": self.folder, **changes})

    def write(self, name, text, mode=0o644):
        path = os.path.join(self.folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path, mode)
        return path

    def real(self):
        """gpurun and gpuctl themselves are beside the front."""
        for part in (world.GPURUN, world.GPUCTL):
            path = os.path.join(self.prefix, "bin", os.path.basename(part))
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            os.symlink(part, path)

    def stand_ins(self):
        for part in ("gpurun", "gpuctl"):
            self.write(f"prefix/bin/{part}", PRINTS_WORDS, 0o755)

    def bitfusion(self, *words, env=None, before=()):
        return subprocess.run([*before, self.front, *words], env=env or self.env, capture_output=True, text=True,
                              timeout=world.SECONDS, stdin=subprocess.DEVNULL)

    def start(self, *words, env=None):
        return subprocess.Popen([self.front, *words], env=env or self.env, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True,
                                start_new_session=True)

    def refused(self, words, said, status, env=None):
        done = self.bitfusion(*words, env=env)
        self.assertEqual((done.returncode, done.stdout), (status, ""), (words, done.stderr))
        self.assertRegex(done.stderr, rf"^bitfusion: [^\n]*{said}[^\n]*\n$")

    def serve(self, *words, **options):
        return self.stack.enter_context(world.Gpurund(*words, **options))

    def user_of(self, server, **changes):
        return self.variables(GPURUN_SERVERS=server.address, GPURUN_SECRET_FILE=server.secret_file, **changes)


class Words(Fronted):
    def setUp(self):
        super().setUp()
        self.stand_ins()

    def becomes(self, words, *wanted, **options):
        done = self.bitfusion(*words, **options)
        self.assertEqual((done.returncode, done.stderr), (0, ""), words)
        self.assertEqual(done.stdout.splitlines(), list(wanted), words)

    def test_each_form_of_an_option_is_read(self):
        for words in (["-n", "2"], ["-n2"], ["-n=2"], ["--num_gpus", "2"], ["--num_gpus=2"]):
            self.becomes(["run", *words, "--", "app", "-n", "3"], "gpurun", "-n", "2", "--", "app", "-n", "3")
            self.becomes(["run", *words, "app", "--", "-p"], "gpurun", "-n", "2", "--", "app", "--", "-p")
        for words in (["-l", "a:1"], ["-la:1"], ["--server_list", "a:1"], ["--server_list=a:1"]):
            self.becomes(["run", *words, "app"], "gpurun", "-l", "a:1", "--", "app")
            self.becomes(["list_gpus", *words], "gpuctl", "list", "-l", "a:1")
        for words in (["-s", "a file"], ["-sa file"], ["--servers", "a file"], ["--servers=a file"]):
            self.becomes(["run", *words, "app"], "gpurun", "-s", "a file", "--", "app")
            self.becomes(["list_gpus", *words, "--json"], "gpuctl", "list", "-s", "a file", "--json")
        for words in (["-t", "5m"], ["-t5m"], ["--timeout", "5m"], ["--timeout=5m"]):
            self.becomes(["run", *words, "app"], "gpurun", "--timeout", "300s", "--", "app")
        self.becomes(["run", "-s", "f", "-n", "4", "--timeout=1s", "--", "app"],
                     "gpurun", "-s", "f", "-n", "4", "--timeout", "1s", "--", "app")
        self.becomes(["version"], "gpurun", "--version")

    def test_empty_value_is_not_dropped(self):
        self.becomes(["run", "-l", "", "app"], "gpurun", "-l", "", "--", "app")
        self.becomes(["run", "--num_gpus=", "app"], "gpurun", "-n", "", "--", "app")

    def test_servers_may_have_any_separator(self):
        for servers in ("a:1,[::1]:2", "a:1;[::1]:2", "a:1 [::1]:2", "a:1, [::1]:2"):
            self.becomes(["run", "-l", servers, "app"], "gpurun", "-l", "a:1,[::1]:2", "--", "app")
        self.becomes(["run", "-l", "*", "app"], "gpurun", "-l", "*", "--", "app")

    def test_times_of_bitfusion_are_read(self):
        for time, seconds in (("45", "45s"), ("08", "8s"), ("0", "0s"), ("2m30s", "150s"), ("1h30m", "5400s"),
                              ("1d", "86400s"), ("250ms", "250ms"), ("010m", "600s")):
            self.becomes(["run", "--timeout", time, "app"], "gpurun", "--timeout", seconds, "--", "app")
        for time, said in (("", "is no time"), ("soon", "is no time"), ("-1", "is no time"), ("s", "is no time"),
                           ("1.5h", "is no time"), ("1h30", "without a unit"), ("99999999s", "more than 30 days"),
                           ("1h; id", "is no time")):
            self.refused(["run", "--timeout", time, "app"], f"--timeout: '{re.escape(time)}'.*{said}|{said}", 125)

    def test_one_word_is_a_line_for_the_shell(self):
        for line in ("python train.py --lr '0.1'", "a && b", "a;b", "echo $HOME", "a|b", "a>b"):
            self.becomes(["run", "-n", "1", line], "gpurun", "-n", "1", "--", "sh", "-c", line)
        self.becomes(["run", "./app"], "gpurun", "--", "./app")
        self.becomes(["run", "a b", "c"], "gpurun", "--", "a b", "c")
        program = self.write("my app", "#!/bin/sh\n", 0o755)
        self.becomes(["run", program], "gpurun", "--", program)

    def test_missing_features_are_refused_by_name(self):
        for words, said in ((["-p", "0.5"], "-p .--partial. does not exist yet in this version"),
                            (["-p1"], "-p .--partial. does not exist yet"),
                            (["--partial=0.25"], "-p .--partial. does not exist yet"),
                            (["-m", "1024"], "-m .--memory. does not exist yet in this version"),
                            (["--memory=1024"], "-m .--memory. does not exist yet"),
                            (["--filter", "device.name=T4"], "--filter does not exist yet in this version"),
                            (["-n", "1", "--filter=server.hostname=a"], "--filter does not exist yet"),
                            (["--fast"], "run has no option --fast"), (["-x"], "run has no option -x"),
                            (["--json"], "run has no option --json"), (["-n"], "-n needs a value"),
                            (["--timeout"], "--timeout needs a value"), (["-n1", "-n", "1"], "more than once"),
                            (["-l", "a", "--server_list=b"], "more than once")):
            self.refused(["run", *words] if words[-1] in ("-n", "--timeout") else ["run", *words, "--", "app"],
                         said, 125)
        for words in ([], ["--"], ["-n", "1"], ["-n", "1", "--"]):
            self.refused(["run", *words], "run names no program", 125)
        for word, instead in (("smi", "list_gpus"), ("request_gpus", "run -n 1 -- bash"),
                              ("release_gpus", "run -n 1 -- bash"), ("client", "run -n 1 -- bash"),
                              ("local", "-l none"), ("tokens", "gpurun login"), ("crashreport", "gpuctl report"),
                              ("stop", "gpurund"), ("dashboard", "gpurund"),
                              ("nonsense", "there is no command 'nonsense'")):
            self.refused([word, "-n", "1"], instead, 2)
        self.refused([], "no command is named", 2)
        for command in ("list_gpus", "health", "localhealth", "net_perf"):
            self.refused([command, "word"], f"{command} takes no word 'word'", 2)
            self.refused([command, "-n", "1"], f"{command} has no option -n", 2)
        self.refused(["localhealth", "-l", "a"], "localhealth has no option -l", 2)

    def test_token_in_a_wrong_place_is_hidden(self):
        self.real()
        digits = "3f786850e387550f" * 4
        token = f"gpurun1_0123456789ab_{digits}_01234567"
        for words in ([token], [f"--{token}"], ["run", f"--token={token}", "app"], ["run", "-t", token, "app"],
                      ["list_gpus", token], ["health", token], ["run", "-l", token, "app"], ["health", "-l", token],
                      ["health", "-s", token], ["list_gpus", "-s", token], ["run", "-l", "none", token]):
            done = self.bitfusion(*words)
            self.assertNotEqual(done.returncode, 0, words)
            self.assertRegex(done.stdout + done.stderr, r"gpurun1_\(hidden\)|not shown", words)
            self.assertNotIn(digits[:16], done.stdout + done.stderr)

    def test_help_shows_commands(self):
        for words in (["help"], ["--help"], ["-h"], ["run", "--help"], ["health", "-h"]):
            done = self.bitfusion(*words)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            for said in ("bitfusion run [-n N]", "list_gpus", "localhealth", "--timeout TIME", "thin front"):
                self.assertIn(said, done.stdout)
            self.assertNotIn("set -u", done.stdout)

    def test_missing_part_is_named(self):
        for part, words, status in (("gpurun", ["run", "app"], 125), ("gpurun", ["version"], 2),
                                    ("gpuctl", ["list_gpus"], 2)):
            os.unlink(os.path.join(self.prefix, "bin", part))
            self.refused(words, f"{self.prefix}/bin/{part} is missing.*Install gpurun-client whole", status)
            self.stand_ins()

    def test_links_and_shells_find_the_parts(self):
        """As update-alternatives links /usr/bin/bitfusion, and under other shells than this one."""
        os.makedirs(os.path.join(self.folder, "usr/bin"))
        os.symlink(self.front, os.path.join(self.folder, "alternative"))
        os.symlink("../../alternative", os.path.join(self.folder, "usr/bin/bitfusion"))
        env = {**self.env, "PATH": f"{self.folder}/usr/bin:{self.env['PATH']}"}
        done = subprocess.run(["bitfusion", "run", "-n", "1", "app"], env=env, capture_output=True, text=True,
                              timeout=world.SECONDS)
        self.assertEqual((done.stdout, done.stderr), ("gpurun\n-n\n1\n--\napp\n", ""))
        for shell in SHELLS:
            with self.subTest(shell=shell):
                self.becomes(["run", "-n1", "-l", "a;b", "-t", "1h1m", "echo x"], "gpurun", "-l", "a,b", "-n", "1",
                             "--timeout", "3660s", "--", "sh", "-c", "echo x", before=shell)


class Servers(Fronted):
    def setUp(self):
        super().setUp()
        self.stand_ins()

    def asks(self, *wanted, **changes):
        done = self.bitfusion("list_gpus", env=self.variables(**changes))
        self.assertEqual((done.returncode, done.stdout.splitlines()), (0, ["gpuctl", "list", *wanted]), done.stderr)

    def test_places_of_servers_in_their_order(self):
        if OF_THIS_MACHINE:
            self.skipTest(f"this machine has {OF_THIS_MACHINE}")
        for words, status in ((["run", "app"], 125), (["list_gpus"], 2)):
            self.refused(words, "no server is named.*-l HOST", status, env=self.variables())
        own = self.write("home/.config/gpurun/servers", "# none yet\r\n\r\n  # none\n")
        self.refused(["list_gpus"], "no server is named", 2, env=self.variables())
        old = self.write("home/.bitfusion/servers.conf", "servers:\n- reachable: 127.0.0.1:1\n")
        self.asks("-s", old)
        done = self.bitfusion("run", "app", env=self.variables())
        self.assertEqual(done.stdout.splitlines(), ["gpurun", "-s", old, "--", "app"])
        self.asks(GPURUN_SERVERS="127.0.0.1:1")  # gpuctl reads the variable and its own file itself.
        for line in ("host", "none", "  host # comment"):
            self.write("home/.config/gpurun/servers", line)
            self.asks()
        os.unlink(own)
        os.mkdir(own)
        self.asks()  # gpuctl reports that it is a folder.

    def test_net_perf_is_gpuctl_netperf(self):
        for words, wanted in ((["net_perf"], []), (["netperf", "--json", "-l", "a;b"], ["-l", "a,b", "--json"])):
            done = self.bitfusion(*words, env=self.variables(GPURUN_SERVERS="a"))
            self.assertEqual((done.returncode, done.stdout.splitlines()), (0, ["gpuctl", "netperf", *wanted]))

    def test_broken_and_good_servers_files(self):
        self.real()
        server = self.serve()
        gone = f"127.0.0.1:{unused_port()}"
        env = self.user_of(server)
        for name, text in (("plain", f"# servers\n\n{server.address}   # the first\r\n"),
                           ("two", f"{gone}\n{server.address}\n"),
                           ("conf", f"servers:\n- reachable: {server.address}\n  addresses:\n  - {gone}\n"),
                           ("tight", f"servers:\n- reachable:{server.address}\n")):
            path = self.write(name, text)
            done = self.bitfusion("run", "-n", "1", "-s", path, "--", "echo", "ran", env=env)
            self.assertEqual((done.returncode, done.stdout), (0, "ran\n"), (name, done.stderr))
            self.assertIn(server.address, self.bitfusion("list_gpus", "--servers", path, env=env).stdout)
        for name, text, said in (("words", "\nhost a\n", "words:2: 'host a' names no host"),
                                 ("port", "host:0\n", "port:1: .*1 to 65535"),
                                 ("v6", "::1\n", r"v6:1: .*in brackets, \[::1\]"),
                                 ("commas", "a,b\n", "commas:1: write one server a line"),
                                 ("yaml", "servers:\n- reachable: 127.0.0.1:x\n", "yaml:2: .*1 to 65535"),
                                 ("empty", "# none\n", "empty names no server")):
            path = self.write(name, text)
            done = self.bitfusion("run", "-s", path, "--", "echo", "ran", env=env)
            self.assertEqual((done.returncode, done.stdout), (125, ""))
            self.assertRegex(done.stderr, f"^gpurun: [^\n]*{said}[^\n]*\n$")
            done = self.bitfusion("health", "-s", path, env=env)
            self.assertEqual(done.returncode, 1)
            self.assertRegex(done.stdout, rf"(?m)^failed +servers +[^\n]*{said}[^\n]*\n +fix: correct that file")
        self.assertEqual(self.bitfusion("list_gpus", "-s", path, env=env).returncode, 2)

    def test_ipv6_server(self):
        self.real()
        try:
            socket.create_server(("::1", 0), family=socket.AF_INET6).close()
        except OSError as error:
            self.skipTest(f"no IPv6 here: {error}")
        server = self.serve("--listen", "[::1]:0")
        path = self.write("v6", f"{server.address}\n")
        env = self.user_of(server)
        for words in (["-l", server.address], ["-s", path]):
            done = self.bitfusion("run", *words, "--", "echo", "ran", env=env)
            self.assertEqual((done.returncode, done.stdout), (0, "ran\n"), done.stderr)
            done = self.bitfusion("health", *words, env=env)
            self.assertEqual(done.returncode, 0, done.stdout)
            self.assertRegex(done.stdout, rf"(?m)^ok +token +{re.escape(server.address)} answers")


class Runs(Fronted):
    def setUp(self):
        super().setUp()
        self.real()

    def test_exit_status_is_the_programs(self):
        server = self.serve()
        env = self.user_of(server)
        for command, status in ((["sh", "-c", "exit 3"], 3), (["true && exit 4"], 4),
                                ([world.ARGS.client, "once"], 0), (["/no/such"], 127), (["/etc/passwd"], 126),
                                (["kill -TERM $$; true"], -signal.SIGTERM)):
            done = self.bitfusion("run", "-n", "1", *command, env=env)
            self.assertEqual(done.returncode, status, (command, done.stderr))
        done = self.bitfusion("run", "-n", "2", "--", "echo", "ran", env=env)
        self.assertEqual((done.returncode, done.stdout), (125, ""))
        self.assertIn("2 GPUs wanted; this server has 1", done.stderr)

    def test_dead_server(self):
        gone = f"127.0.0.1:{unused_port()}"
        for words, status in ((["run", "-l", gone, "--", "echo", "ran"], 125), (["list_gpus", "-l", gone], 125),
                              (["health", "-l", gone], 1)):
            done = self.bitfusion(*words)
            self.assertEqual(done.returncode, status, words)
            self.assertIn(f"no server at {gone}", done.stdout + done.stderr)
            self.assertNotIn("ran", done.stdout)
        self.assertRegex(done.stdout, r"(?m)^ +fix: start gpurund --listen 0\.0\.0\.0")

    def test_ctrl_c_reaches_the_program(self):
        server = self.serve()
        # A shell without a terminal lets its background processes ignore the signal.
        run = self.start("run", "-n", "1", "trap 'echo caught; kill $!; exit 7' INT; sleep 1000 & echo ready; wait",
                         env=self.user_of(server))
        self.stack.callback(lambda: os.killpg(run.pid, signal.SIGKILL) if run.poll() is None else None)
        self.assertEqual(run.stdout.readline(), "ready\n")
        self.assertEqual(world.name_of(run.pid), "gpurun")  # The front has become gpurun.
        os.killpg(run.pid, signal.SIGINT)
        self.assertEqual(run.stdout.readline(), "caught\n")
        run.communicate(timeout=world.SECONDS)
        self.assertEqual(run.returncode, 7)
        until(lambda: world.holdings(server)["leases"] == 0, "its lease has ended")

    def test_ctrl_c_ends_the_wait_for_a_gpu(self):
        server = self.serve()
        env = self.user_of(server)
        holder = self.start("run", "echo ready; exec sleep 1000", env=env)
        self.assertEqual(holder.stdout.readline(), "ready\n")
        done = self.bitfusion("run", "--timeout", "0", "--", "echo", "ran", env=env)
        self.assertEqual((done.returncode, done.stdout), (125, ""))
        waiting = self.start("run", "--timeout", "1h", "--", "echo", "ran", env=env)
        until(lambda: world.holdings(server)["waiting"] == 1, "it waits")
        os.killpg(waiting.pid, signal.SIGINT)
        self.assertEqual(waiting.communicate(timeout=world.SECONDS)[0], "")
        self.assertNotEqual(waiting.returncode, 0)
        until(lambda: world.holdings(server)["waiting"] == 0, "its place is given up")
        holder.terminate()
        holder.communicate(timeout=world.SECONDS)

    def test_list_gpus_is_gpuctl_list(self):
        server = self.serve()
        env = self.user_of(server)
        for words in ([], ["--json"]):
            done = self.bitfusion("list_gpus", *words, env=env)
            own = subprocess.run([world.GPUCTL, "list", *words], env=env, capture_output=True, text=True,
                                 timeout=world.SECONDS)
            self.assertEqual((done.returncode, done.stdout), (0, own.stdout), done.stderr)
            self.assertIn(server.address, done.stdout)

    def test_version_is_gpuruns(self):
        done = self.bitfusion("version")
        self.assertEqual(done.returncode, 0)
        self.assertRegex(done.stdout, r"^gpurun \d+\.\d+\.\d+ \(protocol \d+, .*\)\n$")


class Health(Fronted):
    def setUp(self):
        super().setUp()
        self.real()
        self.client = os.path.join(self.prefix, "lib/gpurun/client")
        self.libraries = [name for name in os.listdir(world.ARGS.client_dir) if name.startswith("lib")]
        os.makedirs(self.client)
        for name in self.libraries:
            os.symlink(os.path.join(world.ARGS.client_dir, name), os.path.join(self.client, name))

    def variables(self, **changes):
        # The programs are links, and find their parts in the build.
        return super().variables(**{"GPURUN_CLIENT_DIR": os.path.join(self.prefix, "lib/gpurun/client"), **changes})

    def checked(self, *words, failing, env=None, before=()):
        """The output of a check that fails at exactly the lines of these patterns, each with a remedy."""
        done = self.bitfusion(*words, env=env, before=before)
        self.assertEqual(done.stderr, "")
        failed = re.findall(r"(?m)^failed +\S+ +([^\n]*)\n         fix: [^\n]+$", done.stdout)
        self.assertEqual(len(failed), len(failing), done.stdout)
        for line, pattern in zip(failed, failing):
            self.assertRegex(line, pattern)
        counts = [len(re.findall(rf"(?m)^{word} +", done.stdout)) for word in ("ok", "warning", "n/a")]
        warnings = "1 warning" if counts[1] == 1 else f"{counts[1]} warnings"
        self.assertTrue(done.stdout.endswith(f"\n{counts[0]} ok, {warnings}, {len(failing)} failed, "
                                             f"{counts[2]} not applicable\n"), done.stdout)
        self.assertEqual(done.returncode, 1 if failing else 0, done.stdout)
        return done.stdout

    def assertOk(self, text, shown):
        self.assertRegex(shown, rf"(?m)^ok +\S+ +{re.escape(text)}")

    def test_healthy_machine_and_server_pass(self):
        server = self.serve()
        env = self.user_of(server)
        for words in (("localhealth",), ("health",), ("health", "-l", server.address)):
            shown = self.checked(*words, failing=[], env=env)
            for library in ("libcuda.so.1", "libnvidia-ml.so.1", "libgpurun-nvjitlink.so"):
                self.assertOk(f"{self.client}/{library} loads\n", shown)
            self.assertOk(f"{os.path.realpath(world.GPURUN)} starts: gpurun ", shown)
            self.assertIn("locked memory", shown)
            self.assertEqual("answers" in shown, words[0] == "health")
        self.assertOk(f"{server.address} answers, and accepts this user\n", shown)
        self.assertOk(f"{server.address} has GPUs: 1, of them free: 1\n", shown)
        self.assertOk(f"{server.address} has this machine's release, ", shown)
        self.assertNotIn("--timeout", shown)

    def test_each_shell_runs_the_checks(self):
        gone = f"127.0.0.1:{unused_port()}"
        for shell in SHELLS:
            with self.subTest(shell=shell):
                self.checked("health", "-l", gone, failing=[f"no server at {gone}"], before=shell)

    def test_held_gpu_is_counted_and_program_name_is_not_believed(self):
        server = self.serve()
        env = self.user_of(server)
        program = self.write('x","lease":null,"index":7,"release":"9', "#!/bin/sh\necho ready; exec sleep 1000\n", 0o755)
        run = self.start("run", "--", program, env=env)
        self.assertEqual(run.stdout.readline(), "ready\n")
        shown = self.checked("health", failing=[], env=env)
        self.assertRegex(shown, rf"(?m)^warning +gpus +{server.address} has GPUs: 1, of them free: 0$")
        self.assertOk(f"{server.address} has this machine's release, ", shown)
        self.assertIn("--timeout 1h waits", shown)
        run.terminate()
        run.communicate(timeout=world.SECONDS)

    def test_missing_and_broken_libraries_fail(self):
        env = self.variables(GPURUN_SERVERS="none")
        library = os.path.join(self.client, "libcuda.so.1")
        os.unlink(library)
        self.checked("localhealth", failing=[f"{library} is missing"], env=env)
        self.write("prefix/lib/gpurun/client/libcuda.so.1", "no library\n")
        self.checked("localhealth", failing=[f"{library} does not load: "], env=env)
        os.unlink(library)
        # A library of a newer C library: its version is not found.
        with open(os.path.join(world.ARGS.client_dir, "libcuda.so.1"), "rb") as file:
            content = file.read()
        newer = content.replace(b"GLIBC_2.", b"GLIBC_9.")
        self.assertNotEqual(newer, content)
        with open(library, "wb") as file:
            file.write(newer)
        self.checked("localhealth", failing=[f"{library} does not load: .*(not found|GLIBC_9)"], env=env)

    def test_program_that_does_not_start_fails(self):
        self.write("prefix/bin/gpuctl.new", "#!/bin/sh\necho 'no loader' >&2; exit 1\n", 0o755)
        os.rename(f"{self.prefix}/bin/gpuctl.new", f"{self.prefix}/bin/gpuctl")
        self.checked("localhealth", failing=["bin/gpuctl does not start: no loader"],
                     env=self.variables(GPURUN_SERVERS="none"))

    def test_readable_token_fails(self):
        server = self.serve()
        done = subprocess.run([world.GPUCTL, "token", "create", "anna", "--tokens", server.tokens_file],
                              env=environment(), capture_output=True, text=True, timeout=world.SECONDS, check=True)
        env = self.variables(GPURUN_SERVERS=server.address)
        token = self.write(f"home/.config/gpurun/tokens/{server.address}", done.stdout, 0o600)
        shown = self.checked("health", failing=[], env=env)
        self.assertOk(f"no other user may read the token in {token}\n", shown)
        os.chmod(token, 0o644)
        shown = self.checked("health", failing=["others may read the token", "others may read this token"], env=env)
        self.assertIn(f"chmod 600 '{token}'", shown)
        self.assertNotIn(done.stdout.strip(), shown)
        os.unlink(token)
        shown = self.checked("health", failing=["wants a token, and none was found"], env=env)
        self.assertIn("fix: ask the server's operator for a token", shown)

    def test_changed_key_and_revoked_token_fail(self):
        server = self.serve("--tls")
        done = subprocess.run([world.GPUCTL, "token", "create", "anna", "--tokens", server.tokens_file],
                              env=environment(), capture_output=True, text=True, timeout=world.SECONDS, check=True)
        with open(server.tokens_file + ".fingerprint", encoding="utf-8") as file:
            key = file.read().strip()
        env = self.variables()
        subprocess.run([world.GPURUN, "login", server.address, "--tls", "--fingerprint", key], env=env,
                       input=done.stdout, text=True, capture_output=True, timeout=world.SECONDS, check=True)
        shown = self.checked("health", failing=[], env=env)
        self.assertOk(f"{server.address} shows the key {key}, which gpurun login pinned\n", shown)
        known = self.write("home/.config/gpurun/known_servers", f"{server.address} sha256:{'0' * 64} pinned\n", 0o600)
        shown = self.checked("health", failing=["shows another key than it did before"], env=env)
        self.assertIn("fix: ask the operator for the key", shown)
        self.write("home/.config/gpurun/known_servers", f"{server.address} {key} pinned\n", 0o600)
        self.assertTrue(os.path.exists(known))
        subprocess.run([world.GPUCTL, "token", "revoke", "--user", "anna", "--tokens", server.tokens_file],
                       env=environment(), capture_output=True, timeout=world.SECONDS, check=True)
        shown = self.checked("health", failing=["was revoked"], env=env)
        self.assertIn("fix: ask the server's operator for a token", shown)

    def test_each_server_of_a_list_is_checked(self):
        server = self.serve()
        env = self.user_of(server)
        gone = [f"127.0.0.1:{unused_port()}" for _ in range(2)]
        shown = self.checked("health", "-l", ";".join([gone[0], server.address, gone[1]]),
                             failing=[f"no server at {each}" for each in gone], env=env)
        self.assertOk(f"{server.address} answers", shown)

    def test_machine_without_servers_fails(self):
        if OF_THIS_MACHINE:
            self.skipTest(f"this machine has {OF_THIS_MACHINE}")
        for command in ("health", "localhealth"):
            shown = self.checked(command, failing=["no server is named"], env=self.variables())
            self.assertIn("fix: gpurun login HOST", shown)

    def test_ctrl_c_ends_health(self):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            run = self.start("health", "-l", "127.0.0.1:%d" % silent.getsockname()[1], env=self.variables())
            connection, _ = silent.accept()
            with connection:
                os.killpg(run.pid, signal.SIGINT)
                run.communicate(timeout=world.SECONDS)
        self.assertEqual(run.returncode, -signal.SIGINT)


if __name__ == "__main__":
    world.main()
