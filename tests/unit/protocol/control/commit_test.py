#!/usr/bin/env python3
"""cmake/commit.cmake: --version names the commit of the sources, marks changed ones, and claims no
commit that is not theirs. A build compiles the commit's file only when the commit has changed.
usage: commit_test.py SOURCE"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE = os.path.abspath(sys.argv.pop(1))
SCRIPT = os.path.join(SOURCE, "cmake/commit.cmake")
LONG = 60  # Seconds.


def git(folder, *words):
    names = {"GIT_AUTHOR_NAME": "t", "GIT_AUTHOR_EMAIL": "t@t", "GIT_COMMITTER_NAME": "t", "GIT_COMMITTER_EMAIL": "t@t"}
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return subprocess.run(["git", "-C", folder, *words], env={**kept, **names}, check=True, capture_output=True,
                          timeout=LONG).stdout


@unittest.skipUnless(shutil.which("git"), "git is missing")
class Commit(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = holder.name
        self.tree = os.path.join(self.folder, "tree")
        self.output = os.path.join(self.folder, "commit.cc")
        os.makedirs(os.path.join(self.tree, "cmake"))
        for name in ("cmake/archived_commit.txt", ".gitattributes"):
            shutil.copy(os.path.join(SOURCE, name), os.path.join(self.tree, name))
        self.write("source.cc", "int one;\n")

    def write(self, name, text):
        with open(os.path.join(self.tree, name), "w", encoding="ascii") as file:
            file.write(text)

    def commit_all(self, folder):
        git(folder, "init", "-q")
        git(folder, "add", "-A")
        git(folder, "commit", "-q", "-m", "all")
        return git(folder, "rev-parse", "HEAD").decode()[:8]

    def named(self, tree=None, **variables):
        subprocess.run(["cmake", f"-DSOURCE={tree or self.tree}", f"-DOUTPUT={self.output}", "-P", SCRIPT],
                       env={**os.environ, **variables}, check=True, capture_output=True, timeout=LONG)
        with open(self.output, encoding="ascii") as file:
            return re.search(r'kCommit = "(.*)";', file.read())[1]

    def test_clean_checkout_has_its_commit(self):
        commit = self.commit_all(self.tree)
        self.assertRegex(commit, r"^[0-9a-f]{8}$")
        self.assertEqual(self.named(), commit)

    def test_changed_and_new_files_are_marked(self):
        commit = self.commit_all(self.tree)
        self.write("source.cc", "int two;\n")
        self.assertEqual(self.named(), commit + "+changes")
        self.write("source.cc", "int one;\n")
        self.assertEqual(self.named(), commit)
        self.write("another.cc", "int three;\n")
        self.assertEqual(self.named(), commit + "+changes")

    def test_worktree_has_its_own_commit(self):
        self.commit_all(self.tree)
        beside = os.path.join(self.folder, "beside")
        git(self.tree, "worktree", "add", "-q", "--detach", beside)
        with open(os.path.join(beside, "source.cc"), "a", encoding="ascii") as file:
            file.write("int more;\n")
        git(beside, "commit", "-q", "-a", "-m", "more")
        self.assertEqual(self.named(beside), git(beside, "rev-parse", "HEAD").decode()[:8])

    def test_archive_has_the_commit_that_it_was_made_of(self):
        commit = self.commit_all(self.tree)
        archive = os.path.join(self.folder, "archive.tar")
        git(self.tree, "archive", "--prefix=unpacked/", "-o", archive, "HEAD")
        subprocess.run(["tar", "-xf", archive, "-C", self.folder], check=True, timeout=LONG)
        self.assertEqual(self.named(os.path.join(self.folder, "unpacked")), commit)

    def test_copy_without_git_has_no_commit(self):
        self.assertEqual(self.named(), "unknown")

    def test_copy_within_another_repository_has_no_commit(self):
        self.commit_all(self.folder)
        self.assertEqual(self.named(), "unknown")

    def test_checkout_without_a_commit_has_none(self):
        git(self.tree, "init", "-q")
        self.assertEqual(self.named(), "unknown")

    def test_variables_of_a_hook_do_not_matter(self):
        commit = self.commit_all(self.tree)
        other = os.path.join(self.folder, "other")
        os.makedirs(other)
        with open(os.path.join(other, "file"), "w", encoding="ascii") as file:
            file.write("other\n")
        self.commit_all(other)
        self.assertEqual(self.named(GIT_DIR=os.path.join(other, ".git"), GIT_WORK_TREE=other), commit)

    def test_file_is_written_only_when_the_commit_changes(self):
        self.commit_all(self.tree)
        first = self.named()
        os.utime(self.output, (1, 1))
        self.named()
        self.assertEqual(os.stat(self.output).st_mtime, 1)
        self.write("source.cc", "int two;\n")
        git(self.tree, "commit", "-q", "-a", "-m", "two")
        self.assertNotEqual(self.named(), first)
        self.assertNotEqual(os.stat(self.output).st_mtime, 1)


if __name__ == "__main__":
    unittest.main(verbosity=2)
