#!/usr/bin/env python3
"""gpurund's settings: a mistake in the file or on the command line is named with its place and ends
gpurund with one status. What they contain reaches the daemon and its workers."""
import os
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../support"))
import world  # noqa: E402
from world import environment, gpurun  # noqa: E402
from gpu_program import GpuProgram  # noqa: E402


class Settings(unittest.TestCase):
    """A mistake in the file is shown with its line, and never ignored."""

    def start_with(self, text, *words):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "gpurund.toml")
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            done = subprocess.run([world.GPURUND, "--config", path, *words], env=environment(),
                                  capture_output=True, text=True, timeout=world.SECONDS,
                                  stdin=subprocess.DEVNULL)
        return done.returncode, done.stderr

    def test_mistakes_are_reported_with_line(self):
        for text, line, named in (
                ('listen = "127.0.0.1:0"\n\nlisten_on = "x"\n', 3, "'listen_on' is unknown"),
                ('\ninsecure-plaintext = "yes"\n', 2, "true or false"),
                ("driver = 5\n", 1, "text in quotes"),
                ("worker-uids = [5]\n", 1, "first, last"),
                ("\naudit = 5\n", 2, "text in quotes"),
                ("every-user = 5\n", 1, "must be a table"),
                ("[every-user]\nmax-leases = -1\n", 2, "'every-user.max-leases' must be a number from 0 up"),
                ("log = 'info'\n[user.anna]\nmax-horses = 1\n", 3, "'user.anna.max-horses' is unknown"),
                ("[user.'../x']\n", 1, "a user's name has"),
                ("[user.operator]\n", 1, "server's own secret"),
                ("confinement = 5\n", 1, "text in quotes"),
                ('worker-memory = "much"\n', 1, "'much' is no size"),
                ("worker-memory = 1.5\n", 1, "from 0 up"),
                ('cache-bytes = "4 GiBs"\n', 1, "'4 GiBs' is no size"),
                ('cache-bytes = "-1GiB"\n', 1, "is no size"),
                ('worker-memory = "17179869184GiB"\n', 1, "is no size"),
                ('\nlisten = "a:b"\n', 2, "'a:b' has no valid port"),
                ('driver = "fast"\n', 1, "'driver' is 'fast', which is neither real"),
                ('log = "loud"\n', 1, "'log' is 'loud'; it may be"),
                ('\n\naudit = "x"\n', 3, "'audit' is 'x', which is neither syslog"),
                ('tokens = "x"\n', 1, "'tokens' is 'x', which is neither none"),
                ('confinement = "some"\n', 1, "'some'; it may be full or none"),
                ('worker-numa = "1"\n', 1, "'1'; it may be auto or off"),
                ("[fabric]\ngpudirect = 'on'\n", 1, "'fabric' has a gpudirect that is 'on'; it may be auto or off"),
                ("[fabric]\ngpudirekt = 'off'\n", 2, "did you mean 'gpudirect'?"),
                ("spare-workers = 65\n", 1, "'spare-workers' is 65; it may be 0 to 64"),
                ("[fabric]\nservice-level = 16\n", 1, "'fabric' has service-level = 16; it may be 0 to 15"),
                ("[fabric]\ntraffic-class = 256\n", 1, "'fabric' has traffic-class = 256; it may be 0 to 255"),
                ("[fabric]\ntraffic-class = '1'\n", 2, "'fabric.traffic-class' must be a number from 0 up"),
                ("[fabric]\nservicelevel = 1\n", 2, "did you mean 'service-level'?"),
                ('spare-level = "x"\n', 1, "'x'; it may be mapped or initialised"),
                ('\ntls-key = "/x"\n', 2, "'tls-key' needs tls-certificate"),
                ('tls-certificate = "/x"\n', 1, "'tls-certificate' needs tls-key"),
                # The messages suggest the probable name.
                ('insecure_plaintext = true\n', 1, "did you mean 'insecure-plaintext'?"),
                ('Listen = "x"\n', 1, "did you mean 'listen'?"),
                ("[users.anna]\n", 1, "'users' is unknown; did you mean 'user'?"),
                ("[every-user]\nmax-gpu = 1\n", 2, "did you mean 'max-gpus'?"),
                ("[every-user]\nlog = 'info'\n", 2, "belongs above the file's first [table]"),
                ("[emulated]\nmemry = 5\n", 2, "'emulated.memry' is unknown; did you mean 'memory'?"),
                ("zebra = 1\n", 1, "'zebra' is unknown\n"),
                # Devices of an emulated driver.
                ("emulated = 1\n", 1, "must be a table"),
                ("[emulated]\ndevices = 17\n", 2, "'emulated.devices' must be a number from 1 to 16"),
                ("[emulated]\ndevices = 2\nmemory = '0'\n", 3, "'emulated.memory' must be a size"),
                ("[emulated]\ncapability = 9.05\n", 2, "a compute capability"),
                ("[emulated]\ncapability = 'x'\n", 2, "a compute capability"),
                ("[emulated]\ncapability = true\n", 2, "a compute capability"),
                ("[emulated]\nwatchdog-kills = 1\n", 2, "true or false"),
                ("[emulated]\ncache = 'a,devices=9'\n", 2, "without a comma"),
                ("[emulated]\nledger = '4'\n", 2, "'emulated.ledger' is unknown"),
                ("worker-uids = [9, 5]\n", 1, "first, last"),
                ("cache-bytes = -1\n", 1, "from 0 up"),
                ("cache = 5\n", 1, "text in quotes"),
                ("[listen]\nport = 5\n", 1, "text in quotes"),
                ('log = "info"\n [ [=]]\n', 2, "a table's name must follow '['"),
                ('log = [[ [[[}', 1, "could not determine value type"),
                ('listen = "127.0.0.1\n', 1, ""),
                ('# a comment: \u00e4\ndriver = \u00e4\n', 2, "column 10 has a character beyond"),
                ('lis\u0416ten = "x"\n', 1, "column 4 has a character beyond ASCII"),
                ('log = "info"\u3042\n', 1, "column 13 has a character beyond ASCII"),
                ('driver = "/\\"\u00e4\\\\" \u00e4\n', 1, "column 19 has"),
                ("driver = '/\\'\u00e4\n", 1, "column 14 has"),
                ("cache = '/\u00e4'\n", 1, "in double quotes"),
                ('driver = """/\\\n\n \u00e4"""\n', 3, "quotes of one line only"),
                # toml++ exhausts the stack for a long dotted key.
                ('log = "info"\n' + "a." * 90_000 + "a = 1\n", 2, "more than 64 dots in one line"),
                (" " * (1 << 20) + "\n", "", "more than 1 MiB")):
            status, errors = self.start_with(text)
            self.assertEqual(status, 2, text)
            self.assertIn(f"gpurund.toml:{line}: " if line else "gpurund.toml: ", errors)
            self.assertIn(named, errors)

    def test_strings_and_comments_accept_unicode(self):
        status, errors = self.start_with('\ufeff# \u00e4\u3042' + "." * 70 + '\nlisten = "127.0.0.1:0"\n'
                                         'driver = "/\u00e4/\\"\u0416/\u3042"  # \u00e4\n')
        self.assertEqual(status, 1)
        self.assertIn('/\u00e4/"\u0416/\u3042', errors)

    def test_secret_file_of_other_user_is_refused(self):
        """The owner of the file could change it, and become the operator."""
        if os.geteuid() != 0:
            self.skipTest("needs root, to make another user's file")
        with tempfile.TemporaryDirectory() as folder:
            secret = os.path.join(folder, "secret")
            with open(os.open(secret, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="utf-8") as file:
                file.write("0123456789abcdef0123456789abcdef\n")
            os.chown(secret, 4711, 4711)
            status, errors = self.start_with('listen = "127.0.0.1:0"\n', "--secret-file", secret)
        self.assertEqual(status, 1)
        self.assertIn("secret belongs to user 4711", errors)

    def test_missing_or_irregular_file_is_refused(self):
        done = subprocess.run([world.GPURUND, "--config", "/no/such/file"], capture_output=True,
                              text=True, timeout=world.SECONDS, env=environment())
        self.assertEqual(done.returncode, 2)
        self.assertIn("/no/such/file", done.stderr)
        done = subprocess.run([world.GPURUND, "--config", "/"], capture_output=True, text=True,
                              timeout=world.SECONDS, env=environment())
        self.assertEqual(done.returncode, 2)
        self.assertIn("/: the configuration must be a regular file", done.stderr)

    def test_zero_emulated_devices_are_refused_with_line(self):
        status, errors = self.start_with('listen = "127.0.0.1:0"\n[emulated]\nmemory = "1GiB"\ndevices = 0\n')
        self.assertEqual(status, 2)
        self.assertRegex(errors, r"\.toml:4: [^\n]*devices[^\n]* must be a number from 1 to 16")

    def test_command_line_overrides_file(self):
        status, errors = self.start_with('listen = "127.0.0.1:0"\ndriver = "/from/the/file"\n',
                                         "--driver", "/from/the/words")
        self.assertEqual(status, 1)
        self.assertIn("/from/the/words", errors)
        self.assertNotIn("/from/the/file", errors)

    def test_unknown_option_values_are_refused(self):
        for words, named in ((["--driver", "fast"], "neither real"), (["--log", "loud"], "loud"),
                             (["--driver", "/d", "--confinement", "some"], "'some'; it may be full or none"),
                             (["--worker-uids", "5-"], "FIRST-LAST")):
            status, errors = self.start_with('listen = "127.0.0.1:0"\n', *words)
            self.assertEqual(status, 2)
            self.assertIn(named, errors)

    def test_wrong_options_exit_with_one_status_and_line(self):
        for words, named in ((["extra"], "extra"), (["--no-such"], "--no-such"), (["--listen"], "--listen"),
                             (["--cache-bytes", "12parsecs"], "parsecs"), (["--config"], "--config"),
                             (["--secret-fd", "x"], "--secret-fd"),
                             (["--secret-file", "a", "--secret-fd", "3"], "excludes"),
                             (["--listen", "a:b"], "'a:b' has no valid port"),
                             (["--worker-uids", "5-"], "--worker-uids"), (["--log", "loud"], "--log")):
            done = subprocess.run([world.GPURUND, *words], capture_output=True, text=True,
                                  timeout=world.SECONDS, env=environment(), stdin=subprocess.DEVNULL)
            self.assertEqual((done.returncode, done.stdout), (2, ""), words)
            self.assertRegex(done.stderr, rf"^[^\n]*gpurund\b[^\n]*{named}[^\n]*\n$")

    def test_help_and_version_print_text(self):
        for word in ("--help", "--version"):
            done = subprocess.run([world.GPURUND, word], capture_output=True, text=True,
                                  timeout=world.SECONDS, env=environment(), stdin=subprocess.DEVNULL)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertIn("gpurund", done.stdout)

    def test_sizes_and_emulated_settings_reach_worker(self):
        """The command line of workers, and the variable in their environment."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "gpurund.toml")
            with open(path, "w", encoding="utf-8") as file:
                file.write('worker-memory = "3 GiB"\ncache-bytes = "5MiB"\nworker-uids = "none"\n'
                           'audit = "none"\nlog = "info"\n[emulated]\ndevices = 3\n'
                           'memory = "96MiB"\ncapability = 9.0\nlibrary-capability = "8.6"\n'
                           'watchdog-kills = true\ntier = "fibers"\n')
            with world.Gpurund("--config", path, env=environment(GPURUN_EMULATED="devices=2")) as server:
                program = GpuProgram(server)
                (worker,) = server.workers()
                with open(f"/proc/{worker}/environ", encoding="utf-8") as file:
                    entries = dict(entry.split("=", 1) for entry in file.read().split("\0") if entry)
                words = entries["GPURUN_EMULATED"].split(";")
                self.assertEqual(sorted(words[:-1]),
                                 ["capability=9.0", "devices=3", "library_capability=8.6",
                                  f"memory={96 << 20}", "tier=fibers", "watchdog_kills=1"])
                self.assertEqual(words[-1], "devices=2")  # The last one counts.
                command = world.command_line(worker)
                self.assertEqual(command[command.index("--images-bytes") + 1], str(5 << 20))
                program.go_on()
            self.assertIn("may have 3072 MiB of memory", server.errors)

    def test_ready_line_names_address_devices_encryption_and_version(self):
        version = subprocess.run([world.GPURUND, "--version"], capture_output=True, text=True,
                                 timeout=world.SECONDS, env=environment()).stdout.rstrip("\n")
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "stdout")
            for words, said in (((), "for this machine only, not encrypted"), (("--tls",), "TLS 1.3 only"),
                                (("--listen", "0.0.0.0:0"), "TLS 1.3 beyond this machine"),
                                (("--for-one-run",), None)):
                before = ["sh", "-c", f'exec "$@" > {path}', "sh"]
                with world.Gpurund(*words, before=before) as server:
                    pass
                with open(path, encoding="utf-8") as file:
                    lines = file.read().splitlines()
                if said is None:
                    self.assertEqual(lines, [])
                    continue
                (line,) = lines
                self.assertTrue(line.startswith(f"gpurund: ready on {server.address}: "), line)
                self.assertRegex(line, r": \d+ GPUs? \(.+\) of /\S+libcuda\.so\.1; ")
                self.assertIn(said + "; gpurund ", line)
                self.assertTrue(line.endswith("; " + version), line)

    def test_log_level_of_file_reaches_daemon(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "gpurund.toml")
            with open(path, "w", encoding="utf-8") as file:
                file.write('log = "info"\nworker-uids = "none"\n')
            with world.Gpurund("--config", path) as server:
                self.assertEqual(gpurun(*server.options(), "--", "true").returncode, 0)
        self.assertIn("lease of 1 GPUs", server.errors)


if __name__ == "__main__":
    world.main()
