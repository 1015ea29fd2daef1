#!/usr/bin/env python3
"""Version skew: the real programs of another release against this build's, both ways. A run has right
results, or is refused with one sentence that has both versions and names the side to update.

The other release has this build's code and another version (changed_version.cc), so the test shows
what the versions alone decide. tests/skew/run builds the last release itself.

The words after -- are the program to run, which must print PASSED. Without them the test makes a
few CUDA calls.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../support"))
WORDS = sys.argv[1:]
import world  # noqa: E402
from world import environment  # noqa: E402

PROGRAM = sys.argv[sys.argv.index("--") + 1:] if "--" in sys.argv else []
sys.argv = sys.argv[:1]
PARTS = os.path.join(world.ARGS.build, "tests/other_release")
DEVICE_UNAVAILABLE = 46  # CUDA_ERROR_DEVICE_UNAVAILABLE
UNKNOWN = 40  # A feature that no build has.
DESCRIPTORS = [os.path.join(world.ARGS.build, "programs", name)
               for name in ("driver_shareable_handles", "behaviour_kernels.fatbin")] + ["refused"]


def version_of(program):
    done = subprocess.run([program, "--version"], env=environment(), capture_output=True, text=True,
                          timeout=world.SECONDS)
    found = re.fullmatch(r"(\w+) (\d+\.\d+\.\d+) \(protocol (\d+), commit (?:[0-9a-f]{8}(?:\+changes)?|unknown)\)\n",
                         done.stdout)
    if found is None or found[1] != os.path.basename(program):
        raise AssertionError(f"{program} --version: {done.stdout!r} {done.stderr!r}")
    return found[2], int(found[3])


RELEASE, PROTOCOL = version_of(world.GPURUN)


class Tree:
    """The installed parts of another release. Each of `changes` is a line of changed_version.cc."""

    def __init__(self, test, release, protocol, *changes):
        self.release, self.protocol = release, protocol
        folder = tempfile.mkdtemp(dir=PARTS)
        os.chmod(folder, 0o755)  # Workers have users of their own.
        test.addCleanup(shutil.rmtree, folder)
        self.client_folder = os.path.join(folder, "lib/gpurun/client")
        for part, place in (("gpurun", "bin"), ("gpurund", "bin"), ("gpurun-worker", "bin"),
                            ("libcuda.so.1", self.client_folder)):
            place = os.path.join(folder, place)
            os.makedirs(place, exist_ok=True)
            os.link(os.path.join(PARTS, part), os.path.join(place, part))
            with open(os.path.join(place, "version"), "w", encoding="ascii") as file:
                file.write("\n".join((f"protocol {protocol}", f"release {release}", *changes)) + "\n")
        self.gpurun, self.gpurund = (os.path.join(folder, "bin", name) for name in ("gpurun", "gpurund"))


class Skew(unittest.TestCase):
    def setUp(self):
        major, minor, patch = (int(number) for number in RELEASE.split("."))
        self.older_release = f"{major}.{minor}.{patch - 1}" if patch else f"{major}.{minor - 1}.9"
        self.newer_release = f"{major}.{minor + 1}.0"
        self.older = Tree(self, self.older_release, PROTOCOL - 1)
        self.newer = Tree(self, self.newer_release, PROTOCOL + 1)

    def run_on(self, server, gpurun=world.GPURUN, client_folder=None, words=(), program=(world.ARGS.client, "where")):
        env = environment(GPURUN_CLIENT_DIR=client_folder)
        return subprocess.run([gpurun, "-q", *words, *server.options(), "--", *program], env=env,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=4 * world.SECONDS)

    def refusal(self, client, server, side):
        """The sentence of a server. The two ends are (release, protocol)."""
        return (f"the client speaks protocol {client[1]} (gpurun {client[0]}), this server protocol {server[1]} "
                f"(gpurun {server[0]}): update the {side}")

    def computes(self, server, client=None, words=()):
        """The program runs on the server with the client's parts, and has right results."""
        command = PROGRAM or (world.ARGS.client, "once")
        parts = {} if client is None else {"gpurun": client.gpurun, "client_folder": client.client_folder}
        done = self.run_on(server, words=words, program=command, **parts)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        if PROGRAM:
            self.assertIn("PASSED", done.stdout)
        self.assertEqual(world.without_meeting(done.stderr), "")

    def test_trees_are_of_their_releases(self):
        for tree in (self.older, self.newer):
            for program in (tree.gpurun, tree.gpurund):
                self.assertEqual(version_of(program), (tree.release, tree.protocol))
        for program in (world.GPURUN, world.GPUCTL, world.GPURUND):
            self.assertEqual(version_of(program), (RELEASE, PROTOCOL))

    def test_client_of_other_protocol_is_refused(self):
        for tree, side in ((self.older, "client"), (self.newer, "server")):
            sentence = self.refusal((tree.release, tree.protocol), (RELEASE, PROTOCOL), side)
            for words in ((), ("--tls",)):
                with self.subTest(client=tree.release, words=words), world.Gpurund(*words) as server:
                    done = self.run_on(server, tree.gpurun, tree.client_folder, words)
                    self.assertEqual((done.returncode, done.stdout), (125, ""), done.stderr)
                    self.assertEqual(world.without_meeting(done.stderr),
                                     f"gpurun: server {server.address}: {sentence}\n")
                self.assertRegex(server.errors, rf"warning.* tcp 127\.0\.0\.1:\d+ .*{re.escape(sentence)}\n")

    def test_server_of_other_protocol_refuses(self):
        for tree, side in ((self.older, "server"), (self.newer, "client")):
            sentence = self.refusal((RELEASE, PROTOCOL), (tree.release, tree.protocol), side)
            for words in ((), ("--tls",)):
                with (self.subTest(server=tree.release, words=words),
                      world.Gpurund(*words, program=tree.gpurund) as server):
                    done = self.run_on(server, words=words)
                    self.assertEqual((done.returncode, done.stdout), (125, ""), done.stderr)
                    self.assertEqual(world.without_meeting(done.stderr),
                                     f"gpurun: server {server.address}: {sentence}\n")
                    listed = subprocess.run([world.GPUCTL, "list", *words, *server.options()], env=environment(),
                                            capture_output=True, text=True, timeout=world.SECONDS)
                    self.assertEqual((listed.returncode, listed.stdout), (125, ""))
                    self.assertIn(sentence, listed.stderr)
                self.assertIn(sentence, server.errors)

    def test_library_that_was_updated_during_a_run_is_refused(self):
        """gpurun started before the update, the program after it."""
        for tree, side in ((self.older, "client"), (self.newer, "server")):
            sentence = self.refusal((tree.release, tree.protocol), (RELEASE, PROTOCOL), side)
            for words in ((), ("--tls",)):
                with self.subTest(library=tree.release, words=words), world.Gpurund(*words) as server:
                    done = self.run_on(server, client_folder=tree.client_folder, words=words)
                    self.assertEqual(done.returncode, DEVICE_UNAVAILABLE, done.stderr)
                    self.assertIn(sentence, done.stderr)

    def test_other_release_of_same_protocol_computes(self):
        """The newer end offers a feature that the older one does not know."""
        tree = Tree(self, self.newer_release, PROTOCOL, f"offer {UNKNOWN}")
        with world.Gpurund() as server:
            self.computes(server, tree)
        with world.Gpurund(program=tree.gpurund) as server:
            self.computes(server)

    def test_older_release_without_newer_features_computes(self):
        """The older end has no feature but those that a client requires."""
        tree = Tree(self, self.older_release, PROTOCOL, "only required")
        for words in ((), ("--tls",)):
            with self.subTest(words=words):
                with world.Gpurund(*words, program=tree.gpurund) as server:
                    self.computes(server, words=words)
                with world.Gpurund(*words) as server:
                    self.computes(server, tree, words)

    @unittest.skipUnless(os.path.exists(DESCRIPTORS[0]), "no nvcc has built the program")
    def test_older_release_shares_no_memory_by_descriptors(self):
        tree = Tree(self, self.older_release, PROTOCOL, "only required")
        with world.Gpurund(program=tree.gpurund) as server:
            done = self.run_on(server, program=DESCRIPTORS)
            self.assertEqual((done.returncode, done.stdout), (0, "PASSED\n"), done.stderr)
        with world.Gpurund() as server:
            done = self.run_on(server, tree.gpurun, tree.client_folder, program=DESCRIPTORS)
            self.assertEqual((done.returncode, done.stdout), (0, "PASSED\n"), done.stderr)

    def test_server_records_its_version_and_those_of_clients(self):
        tree = Tree(self, self.older_release, PROTOCOL)
        with world.Gpurund("--log", "info") as server:
            done = self.run_on(server, tree.gpurun, tree.client_folder)
            self.assertEqual(done.returncode, 0, done.stderr)
            with open(server.audit_file, encoding="utf-8") as file:
                audit = file.read()
        own = subprocess.run([world.GPURUND, "--version"], env=environment(), capture_output=True, text=True,
                             timeout=world.SECONDS).stdout.rstrip("\n")
        self.assertRegex(audit, rf'(?m) gpurund\.started .* version="{re.escape(own)}"$')
        self.assertRegex(audit, rf"(?m) lease\.granted .* release={re.escape(tree.release)}$")
        self.assertIn(f"{own} serves on {server.address}\n", server.errors)
        self.assertRegex(server.errors, rf"lease of 1 GPUs for .* \(gpurun {re.escape(tree.release)}\)\n")

    def test_release_that_requires_an_unknown_feature_is_refused(self):
        tree = Tree(self, self.newer_release, PROTOCOL, f"require {UNKNOWN}")
        with world.Gpurund() as server:
            done = self.run_on(server, tree.gpurun, tree.client_folder)
        sentence = (f"the client (gpurun {tree.release}) requires feature {UNKNOWN}, which this server (gpurun "
                    f"{RELEASE}) does not offer: update the server\n")
        self.assertEqual((done.returncode, done.stdout), (125, ""), done.stderr)
        self.assertEqual(world.without_meeting(done.stderr), f"gpurun: server {server.address}: {sentence}")
        self.assertIn(sentence, server.errors)
        with world.Gpurund(program=tree.gpurund) as server:
            done = self.run_on(server)
        self.assertEqual((done.returncode, done.stdout), (125, ""), done.stderr)
        self.assertIn(f"the client (gpurun {RELEASE}) does not offer feature {UNKNOWN}, which this server (gpurun "
                      f"{tree.release}) requires: update the client\n", done.stderr)


if __name__ == "__main__":
    world.main()
