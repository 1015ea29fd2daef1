#!/usr/bin/env python3
"""tools/release: builds a tag's tree and nothing else, refuses a tag that does not fit its version or its
changes, names a missing script, and leaves either the whole set of artefacts or none.

The repository is a temporary one with stand-ins for the scripts of packaging/. A stand-in writes its words
into a file of the folder that --out names. usage: release_test.py SOURCE
"""
import hashlib
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

SOURCE = os.path.abspath(sys.argv.pop(1))
LONG = 60  # Seconds.
CHANGES = """# Changelog

## [Unreleased]

## [1.2.3] - 2026-11-29

### Added

- A thing.

## [1.2.2] - 2026-01-01

- Old.
"""
TREE = """#!/bin/bash
set -e
echo "$0 $*"; out=; name=gpurun
while [ $# -gt 0 ]; do [ "$1" != --out ] || out=$2; shift; done
case "$out" in *server*) name=gpurund ;; esac
mkdir -p "$out/bin"
commit=$(git rev-parse --short=8 HEAD)
printf '#!/bin/sh\\necho "%s 1.2.3 (protocol 5, commit %s)"\\n' "$name" "$commit" > "$out/bin/$name"
chmod +x "$out/bin/$name"
"""
PART = """#!/bin/bash
set -e
words=$*; client=
while [ $# -gt 0 ]; do case "$1" in --out) out=$2 ;; --client) client=$2 ;; esac; shift; done
[ -z "$client" ] || [ -x "$client/bin/gpurun" ]
mkdir -p "$out"
echo "$words, $SOURCE_DATE_EPOCH, $(cat marker)" > "$out/$(basename "$(dirname "$0")")-$(basename "$client")"
"""


class Release(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.root = os.path.join(holder.name, "repository")
        self.write("tools/release", None)
        self.write("CMakeLists.txt", "# gpurun\nproject(gpurun VERSION 1.2.3 LANGUAGES C)\n")
        self.write("CHANGELOG.md", CHANGES)
        self.write("marker", "of the tag\n")
        self.write(".gitignore", "/build*/\n/dist/\n")
        for part in ("client", "server"):
            self.write(f"packaging/{part}/build", TREE, 0o755)
        for part in ("deb", "tarball", "wheel", "container", "appliance"):
            self.write(f"packaging/{part}/build", PART, 0o755)
        self.git("init", "-q")
        self.tag()

    def write(self, name, text, mode=0o644):
        path = os.path.join(self.root, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if text is None:
            shutil.copy(os.path.join(SOURCE, name), path)
            return
        with open(path, "w", encoding="ascii") as file:
            file.write(text)
        os.chmod(path, mode)

    def git(self, *words):
        names = {f"GIT_{who}_{what}": "t" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        return subprocess.run(["git", "-C", self.root, *words], env={**kept, **names}, check=True,
                              capture_output=True, text=True, timeout=LONG).stdout.strip()

    def tag(self, name="v1.2.3"):
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "all")
        self.git("tag", "-f", "-a", "-m", name, name)

    def release(self, *words):
        return subprocess.run([os.path.join(self.root, "tools/release"), *words], cwd="/", capture_output=True,
                              text=True, timeout=LONG, stdin=subprocess.DEVNULL)

    def refused(self, words, *parts, status=1):
        done = self.release(*words)
        self.assertEqual((done.returncode, done.stdout), (status, ""), done.stderr)
        for part in parts:
            self.assertIn(part, done.stderr)
        self.assertTrue(done.stderr.startswith("release: "), done.stderr)
        self.nothing_left()

    def nothing_left(self, dist=False):
        """No worktree, no temporary folder and no unfinished artefacts."""
        self.assertEqual(self.git("worktree", "list", "--porcelain").count("worktree "), 1)
        build = os.path.join(self.root, "build")
        left = os.listdir(build) if os.path.isdir(build) else []
        self.assertEqual([name for name in left if not name.startswith("release-v")], [])
        self.assertEqual(os.path.exists(os.path.join(self.root, "dist")), dist)

    def files(self, folder):
        return sorted(os.path.relpath(os.path.join(where, name), folder)
                      for where, _, names in os.walk(folder) for name in names)

    def read(self, *path):
        with open(os.path.join(self.root, *path), encoding="utf-8") as file:
            return file.read()

    def test_all_parts_of_the_tag_are_collected_with_checksums(self):
        self.write("marker", "changed since\n")  # This tree, and the next commit, do not matter.
        self.git("commit", "-q", "-a", "-m", "later")
        self.write("packaging/deb/build", "#!/bin/sh\nexit 1\n", 0o755)
        done = self.release("v1.2.3")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        folder = os.path.join(self.root, "dist/v1.2.3")
        expected = ["SHA256SUMS", "container/container-client-x86_64", "deb/deb-client-aarch64", "deb/deb-client-x86_64",
                    "source/changes-1.2.3.md", "source/gpurun-1.2.3.tar.gz", "tarball/tarball-client-aarch64",
                    "tarball/tarball-client-x86_64", "wheel/wheel-client-aarch64", "wheel/wheel-client-x86_64"]
        self.assertEqual(self.files(folder), expected)
        sums = dict(reversed(line.split("  ")) for line in self.read(folder, "SHA256SUMS").splitlines())
        self.assertEqual(sorted(sums), [name for name in expected if name != "SHA256SUMS"])
        for name, digest in sums.items():
            with open(os.path.join(folder, name), "rb") as file:
                self.assertEqual(hashlib.sha256(file.read()).hexdigest(), digest)
        epoch = self.git("log", "-1", "--format=%ct", "v1.2.3")
        self.assertRegex(self.read(folder, "deb/deb-client-x86_64"),
                         rf"--server /\S+/server-x86_64, {epoch}, of the tag\n$")
        self.assertIn("--server none, ", self.read(folder, "deb/deb-client-aarch64"))
        self.assertEqual(self.read(folder, "source/changes-1.2.3.md"), "### Added\n\n- A thing.\n")
        self.nothing_left(dist=True)

    def test_artefacts_are_the_same_again(self):
        for out in ("one", "two"):
            self.assertEqual(self.release("--only", "source,wheel", "--out", os.path.join(self.root, "dist", out),
                                          "v1.2.3").returncode, 0)
        sums = [[line for line in self.read("dist", out, "SHA256SUMS").splitlines() if "source/" in line]
                for out in ("one", "two")]
        self.assertEqual(len(sums[0]), 2)
        self.assertEqual(*sums)

    def test_only_builds_what_its_parts_need(self):
        done = self.release("--only", "tarball,source", "v1.2.3")
        self.assertEqual(done.returncode, 0, done.stderr)
        made = os.listdir(os.path.join(self.root, "dist/v1.2.3"))
        self.assertEqual(sorted(made), ["SHA256SUMS", "source", "tarball"])
        self.assertEqual(sorted(os.listdir(os.path.join(self.root, "build/release-v1.2.3"))),
                         ["client-aarch64", "client-x86_64", "tarball-aarch64", "tarball-x86_64"])

    def test_appliance_is_made_of_the_packages_when_asked(self):
        done = self.release("--only", "appliance", "v1.2.3")
        self.assertEqual(done.returncode, 0, done.stderr)
        folder = os.path.join(self.root, "dist/v1.2.3")
        self.assertEqual(self.files(folder), ["SHA256SUMS", "appliance/appliance-"])
        self.assertRegex(self.read(folder, "appliance/appliance-"), r"^--debs /\S+/deb --out ")
        self.assertIn("appliance: ", self.release("--appliance", "--dry-run", "v1.2.3").stdout)
        self.assertNotIn("appliance", self.release("--dry-run", "v1.2.3").stdout)

    def test_dry_run_prints_the_plan_and_builds_nothing(self):
        done = self.release("--dry-run", "v1.2.3")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        commit = self.git("rev-parse", "v1.2.3^{commit}")[:8]
        lines = done.stdout.splitlines()
        self.assertIn(f"v1.2.3: gpurun 1.2.3, commit {commit}; ", lines[0])
        scripts = [line.split()[1] for line in lines[2:]]
        self.assertEqual(scripts, [f"packaging/{part}/build" for part in (
            "client", "client", "server", "deb", "deb", "tarball", "tarball", "wheel", "wheel", "container")])
        self.nothing_left()

    def test_tag_must_exist_and_fit(self):
        self.refused(["v9.9.9"], "no tag v9.9.9", "git tag")
        self.git("tag", "v1.2.4")
        self.refused(["v1.2.4"], "has version '1.2.3', not 1.2.4")
        self.git("branch", "v7.7.7")  # A branch is no tag.
        self.refused(["v7.7.7"], "no tag v7.7.7")

    def test_tag_must_have_its_changes(self):
        for text in (CHANGES.replace("[1.2.3]", "[1.2.30]"), CHANGES.replace(" - 2026-11-29", ""),
                     CHANGES.replace("- A thing.\n", ""), CHANGES.replace("## [1.2.3]", "### [1.2.3]")):
            self.write("CHANGELOG.md", text)
            self.tag()
            self.refused(["--dry-run", "v1.2.3"], "CHANGELOG.md of v1.2.3 has no '## [1.2.3] - YYYY-MM-DD'")

    def test_missing_script_is_named_before_anything_runs(self):
        self.git("rm", "-q", "packaging/wheel/build")
        os.chmod(os.path.join(self.root, "packaging/deb/build"), 0o644)
        self.tag()
        self.refused(["v1.2.3"], "has no executable packaging/deb/build packaging/wheel/build:")
        done = self.release("--only", "tarball", "v1.2.3")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_failed_script_is_named_and_leaves_no_artefacts(self):
        self.write("packaging/wheel/build", "#!/bin/sh\necho out of wheels\nexit 3\n", 0o755)
        self.tag()
        done = self.release("v1.2.3")
        self.assertEqual(done.returncode, 1)
        self.assertIn("out of wheels\n", done.stderr)
        self.assertIn("packaging/wheel/build for wheel-x86_64 failed with status 3", done.stderr)
        self.nothing_left()
        self.assertEqual(self.read("build/release-v1.2.3/wheel-x86_64"), "out of wheels\n")

    def test_script_that_makes_nothing_is_a_failure(self):
        self.write("packaging/container/build", "#!/bin/sh\n", 0o755)
        self.tag()
        done = self.release("--only", "container", "v1.2.3")
        self.assertEqual(done.returncode, 1)
        self.assertIn("the scripts of container succeeded, and left no file", done.stderr)
        self.nothing_left()

    @unittest.skipUnless(platform.machine() in ("x86_64", "aarch64"), "no client is built for this processor")
    def test_tree_of_another_commit_is_refused(self):
        self.write("packaging/client/build", TREE.replace("$(git rev-parse --short=8 HEAD)", "01234567"), 0o755)
        self.tag()
        done = self.release("--only", "tarball", "v1.2.3")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"gpurun of client-\w+ says 'gpurun 1\.2\.3 \(protocol 5, commit 01234567\)'")
        self.nothing_left()

    def test_existing_artefacts_are_not_touched(self):
        self.write("dist/v1.2.3/kept", "kept\n")
        done = self.release("--only", "source", "v1.2.3")
        self.assertEqual(done.returncode, 1)
        self.assertIn("/dist/v1.2.3 is there already: remove it", done.stderr)
        self.assertEqual(os.listdir(os.path.join(self.root, "dist/v1.2.3")), ["kept"])

    def test_interrupt_leaves_nothing(self):
        began = os.path.join(self.root, "build/began")
        self.write("packaging/tarball/build", f"#!/bin/sh\ntouch {began}\nexec tail -f /dev/null\n", 0o755)
        self.tag()
        process = subprocess.Popen([os.path.join(self.root, "tools/release"), "--only", "tarball", "v1.2.3"],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
                                   preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler))
        deadline = time.monotonic() + LONG
        while not os.path.exists(began) and time.monotonic() < deadline:
            self.assertIsNone(process.poll())
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGINT)
        self.assertEqual(process.wait(LONG), 130)
        os.remove(began)
        self.nothing_left()

    def test_wrong_usage(self):
        for words, part in (([], "no tag"), (["1.2.3"], "'1.2.3' is no tag"), (["v1.2"], "'v1.2' is no tag"),
                            (["v1.2.3", "v1.2.2"], "one tag at a time"), (["--only", "rpm", "v1.2.3"], "'rpm'"),
                            (["--only"], "--only needs"), (["--out"], "--out needs"), (["--nope"], "'--nope'")):
            self.refused(words, part, "--help", status=2)


class Changelog(unittest.TestCase):
    """CHANGELOG.md has the form of Keep a Changelog, which tools/release reads."""

    def test_sections_and_groups_have_the_right_form(self):
        with open(os.path.join(SOURCE, "CHANGELOG.md"), encoding="utf-8") as file:
            text = file.read()
        self.assertTrue(text.startswith("# Changelog\n"))
        sections = re.split(r"(?m)^## ", text)[1:]
        self.assertTrue(sections and sections[0].startswith("[Unreleased]\n"), "the first section")
        for section in sections:
            heading, _, body = section.partition("\n")
            self.assertRegex(heading, r"^(\[Unreleased\]|\[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d)$")
            groups = re.findall(r"(?m)^### (.*)$", body)
            self.assertEqual(len(groups), len(set(groups)), heading)
            self.assertLessEqual(set(groups), {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"})
            before, *parts = re.split(r"(?m)^### .*\n", body)
            self.assertEqual(before.strip(), "", f"{heading}: text outside of the groups")
            for part in parts:
                self.assertRegex(part, r"^\n- ", heading)
        self.assertEqual(len(sections), len({section.split(" ", 1)[0] for section in sections}))


if __name__ == "__main__":
    unittest.main(verbosity=2)
