#!/usr/bin/env python3
"""tests/skew/run can fail: what it accepts as a right run or refusal, what it promises of two releases, which
tag it takes, and that it names what it skips. usage: run_test.py SOURCE"""
import importlib.machinery
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE = os.path.abspath(sys.argv.pop(1))
RUN = os.path.join(SOURCE, "tests/skew/run")
LONG = 60  # Seconds.


def loaded():
    sys.dont_write_bytecode = True
    loader = importlib.machinery.SourceFileLoader("skew_run", RUN)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("skew_run", loader))
    loader.exec_module(module)
    return module


skew = loaded()


class Verdict(unittest.TestCase):
    OLD = skew.Side("v0.1.0", "/old", "0.1.0", "gpurun 0.1.0 (protocol 5, commit 01234567)")
    NEW = skew.Side("of this tree", "/new", "0.2.0", "gpurun 0.2.0 (protocol 6, commit 89abcdef)")
    TELLS = "gpurun: server h:1: the client speaks protocol 5 (gpurun 0.1.0), this server protocol 6 (gpurun 0.2.0): "

    def verdict(self, status, stdout="", stderr="", client=OLD, new=NEW, is_release=True, pattern="PASSED"):
        done = subprocess.CompletedProcess([], status, stdout, stderr)
        return skew.verdict(done, pattern, self.OLD, new, client, is_release)

    def test_right_results_are_good(self):
        self.assertEqual(self.verdict(0, "loss 1\nPASSED\n"), (True, "right results"))

    def test_other_ends_are_bad(self):
        for status, stdout, stderr in ((0, "loss 1\n", ""), (1, "PASSED\n", ""), (-11, "", ""), (125, "", ""),
                                       (125, "", "gpurun: no server at h:1\n"),
                                       (1, "", self.TELLS + "update the client\n")):
            with self.subTest(status=status, stderr=stderr):
                self.assertFalse(self.verdict(status, stdout, stderr)[0])

    def test_refusal_must_name_the_older_side(self):
        self.assertTrue(self.verdict(125, "", self.TELLS + "update the client\n")[0])
        good, why = self.verdict(125, "", self.TELLS + "update the server\n")
        self.assertFalse(good)
        self.assertIn("wrong side, not the client", why)
        self.assertFalse(self.verdict(125, "", self.TELLS + "update the client\n", client=self.NEW)[0])

    def test_refusal_must_name_both_releases(self):
        for release in ("0.1.0", "0.2.0"):
            good, why = self.verdict(125, "", self.TELLS.replace(release, "9.9.9") + "update the client\n")
            self.assertFalse(good)
            self.assertIn(f"does not name release {release}", why)

    def test_refusal_without_a_side_is_for_one_release_only(self):
        alike = ("gpurun: cuInit means something else to the server (gpurun {0}) than to this client (gpurun 0.1.0): "
                 "they are built from different sources: install one build on both\n")
        self.assertFalse(self.verdict(46, "", alike.format("0.2.0"))[0])
        same = self.NEW._replace(release="0.1.0")
        self.assertTrue(self.verdict(46, "", alike.format("0.1.0"), new=same, is_release=False)[0])
        self.assertFalse(self.verdict(46, "", alike.format("0.1.0"), new=same)[0])  # A release must work.

    def test_promised_release_must_not_be_refused(self):
        next_patch = self.NEW._replace(release="0.1.1")
        tells = self.TELLS.replace("0.2.0", "0.1.1") + "update the client\n"
        good, why = self.verdict(125, "", tells, new=next_patch)
        self.assertFalse(good)
        self.assertIn("v0.1.0 must work with release 0.1.1", why)
        self.assertTrue(self.verdict(125, "", tells, new=next_patch, is_release=False)[0])
        for one, other, promise in (("0.1.0", "0.1.9", True), ("0.1.0", "0.2.0", False), ("1.2.0", "1.3.1", True),
                                    ("1.2.0", "2.2.0", False), ("0.1.0", "1.1.0", False), ("0.1.0", "0.10.0", False)):
            self.assertEqual(skew.promised(one, other), promise, (one, other))


@unittest.skipUnless(shutil.which("git"), "git is missing")
class Base(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.root = holder.name
        os.makedirs(os.path.join(self.root, "tests/skew"))
        shutil.copy(RUN, os.path.join(self.root, "tests/skew/run"))
        self.git("init", "-q")

    def git(self, *words):
        names = {f"GIT_{who}_{what}": "t" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        subprocess.run(["git", "-C", self.root, *words], env={**kept, **names}, check=True, capture_output=True,
                       timeout=LONG)

    def commit(self, *tags):
        self.git("commit", "-q", "--allow-empty", "-m", "a change")
        for tag in tags:
            self.git("tag", tag)

    def run_it(self, *words):
        return subprocess.run([os.path.join(self.root, "tests/skew/run"), *words], capture_output=True, text=True,
                              timeout=LONG)

    def test_without_a_tag_it_is_skipped_by_name(self):
        self.commit("latest", "v1", "v0.1.0-rc1")  # No releases.
        done = self.run_it()
        self.assertEqual(done.returncode, 77)
        self.assertRegex(done.stdout, r"^SKIPPED: version skew with the last release: .* no tag vX\.Y\.Z .*\n"
                                      r"0 passed, 0 failed, 1 skipped\n$")

    def test_last_tag_before_head_is_the_base(self):
        self.commit("v0.9.0")
        self.commit("v0.10.0")
        self.commit()
        skew.ROOT, kept = self.root, skew.ROOT
        self.addCleanup(setattr, skew, "ROOT", kept)
        self.assertEqual(skew.last_tag(), "v0.10.0")
        self.git("tag", "v0.11.0")  # The release under test.
        self.assertEqual(skew.last_tag(), "v0.10.0")
        self.git("checkout", "-q", "v0.9.0")  # Later releases are not behind this commit.
        self.assertIsNone(skew.last_tag())

    def test_unknown_base_and_missing_build_are_failures(self):
        self.commit("first")
        self.git("checkout", "-q", "-b", "aside")
        self.commit("beside")
        self.git("checkout", "-q", "first")
        for base, part in (("nosuch", "--base nosuch is neither"), ("beside", "not before HEAD"),
                           ("HEAD", "build this tree first")):
            done = self.run_it("--base", base)
            self.assertEqual(done.returncode, 1)
            self.assertRegex(done.stdout, rf"^FAILED: version skew: .*{part}.*\n0 passed, 1 failed\n$")

    def test_wrong_usage(self):
        for words in (["--no-such"], ["--jobs", "many"], ["--base"], ["extra"]):
            done = self.run_it(*words)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertRegex(done.stderr, r"^tests/skew/run: .*--help")
        done = self.run_it("--help")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("usage: tests/skew/run [", done.stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)
