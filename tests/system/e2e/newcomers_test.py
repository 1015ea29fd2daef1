#!/usr/bin/env python3
"""Users with habits from other programs: gpurun warns about a program that it does not
reach, and names the right option for a misspelt or foreign one."""
import os
import pty
import select
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../support"))
import world  # noqa: E402
from world import environment, gpurun  # noqa: E402


class EscapingCommands(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.env = environment(PATH=self.folder + ":" + os.environ["PATH"])

    def stand_in(self, name):
        """A program of that name that does nothing."""
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\necho started\n")
        os.chmod(path, 0o755)

    def test_gpurun_warns_about_each_escaping_command(self):
        with world.Gpurund() as server:
            for name in ("tmux", "screen", "ssh", "docker", "podman", "systemd-run", "srun", "at"):
                self.stand_in(name)
                for command in ([name, "x"], ["env", "A=1", name], ["sh", "-c", f"true; {name} x"]):
                    done = gpurun(*server.options(), "-q", "--", *command, env=self.env)
                    self.assertEqual((done.returncode, done.stdout), (0, "started\n"), done.stderr)
                    self.assertRegex(done.stderr, f"^gpurun: warning: {name} starts programs [^\n]*"
                                                  "gpurun ... -- PROGRAM\n$")
            done = gpurun(*server.options(), "--", "sh", "-c", "echo ssh", env=self.env)
            self.assertEqual((done.stdout, done.stderr), ("ssh\n", ""))


class UnusedGpu(unittest.TestCase):
    def on_a_terminal(self, *words):
        pid, terminal = pty.fork()
        if pid == 0:
            os.execve(world.GPURUN, [world.GPURUN, *words], environment())
        seen = b""
        while select.select([terminal], [], [], world.SECONDS)[0]:
            try:
                got = os.read(terminal, 4096)
            except OSError:
                break
            if not got:
                break
            seen += got
        os.close(terminal)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 0, seen)
        return seen.decode()

    def test_terminal_run_reports_unused_gpu(self):
        said = "no process of this run has used the GPU"
        with world.Gpurund() as server:
            self.assertIn(said, self.on_a_terminal(*server.options(), "--", "true"))
            self.assertNotIn(said, self.on_a_terminal(*server.options(), "-q", "--", "true"))
            self.assertNotIn(said, self.on_a_terminal(*server.options(), "--", world.ARGS.client, "once"))
            # A child's use counts.
            self.assertNotIn(said, self.on_a_terminal(*server.options(), "--", "sh", "-c",
                                                      f"{world.ARGS.client} once; true"))
            self.assertEqual(gpurun(*server.options(), "--", "true").stderr, "")


class Suggestions(unittest.TestCase):
    def said(self, program, *words):
        done = subprocess.run([program, *words], env=environment(), capture_output=True, text=True,
                              timeout=world.SECONDS, stdin=subprocess.DEVNULL)
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        return done.stderr

    def test_gpurun_suggests_replacement_for_foreign_subcommand(self):
        for words, instead in ((("list_gpus",), "gpuctl list"), (("smi",), "gpuctl list"),
                               (("run", "-n", "1", "--", "true"), "gpurun -n 1 -- PROGRAM"),
                               (("logn", "host"), "did you mean gpurun login")):
            self.assertIn(instead, self.said(world.GPURUN, *words))

    def test_tools_suggest_correction_for_misspelt_word(self):
        for program, words, meant in (
                (world.GPURUN, ("--devise", "emulated", "--", "true"), "--device"),
                (world.GPURUN, ("--tokenfile", "x", "--", "true"), "--token-file"),
                (world.GPUCTL, ("lisz",), "list"), (world.GPUCTL, ("token", "creat", "x"), "create"),
                (world.GPUCTL, ("list", "--jsn"), "--json"),
                (world.GPUCTL, ("token", "list", "--jsno"), "--json"),
                (world.GPURUND, ("--lisen", "127.0.0.1:0"), "--listen"),
                (world.GPURUND, ("--spare-worker", "1"), "--spare-workers")):
            self.assertIn(f"did you mean {meant}?", self.said(program, *words))
        for program, words in ((world.GPURUN, ("--fast", "--", "true")), (world.GPUCTL, ("whatever",)),
                               (world.GPURUND, ("--quick",))):
            self.assertNotIn("did you mean", self.said(program, *words))


if __name__ == "__main__":
    world.main()
