#!/usr/bin/env python3
"""The CI examples of docs/cuda-in-ci.md: each has seven lines and the form that its service reads, and its
commands build and run the page's test file on the emulated device. A wrong kernel fails the job. Parts of
the commands that a test machine lacks have stand-ins: apt-get, which checks what it is to install, and sudo.

usage: ci_page_test.py --root ROOT --build BUILD --nvcc NVCC --environment ENVIRONMENT

ENVIRONMENT: a Python environment with PyYAML, such as that of mkdocs.
"""
import argparse
import glob
import os
import re
import subprocess
import sys
import tempfile
import unittest

SKIPPED = 77
SECONDS = 120
PARSER = argparse.ArgumentParser()
PARSER.add_argument("--root", required=True)
PARSER.add_argument("--build", required=True)
PARSER.add_argument("--nvcc", required=True)
PARSER.add_argument("--environment", required=True)
ARGUMENTS, LEFT = PARSER.parse_known_args()
sys.path += glob.glob(os.path.join(ARGUMENTS.environment, "lib/python3*/site-packages"))
try:
    import yaml
except ImportError:
    print(f"SKIPPED: {ARGUMENTS.environment} has no PyYAML")
    sys.exit(SKIPPED)
PACKAGES = {"./ci/gpurun-client_1_amd64.deb", "./ci/gpurun-emulated_1_amd64.deb", "./ci/gpurun-server_1_amd64.deb"}

# Installs nothing: the tree of `cmake --install` is in PATH. It fails where the real one would.
APT_GET = """#!/bin/sh
if [ "$*" = update ]; then exit 0; fi
[ "$1 $2" = "install -y" ] || { echo "apt-get: $*" >&2; exit 100; }
shift 2
for word in "$@"; do
  case $word in
    --no-install-recommends) continue ;;
    ./*) [ -f "$word" ] || { echo "no file $word" >&2; exit 100; } ;;
  esac
  echo "$word" >> "$INSTALLED"
done
"""
SUDO = '#!/bin/sh\nexec "$@"\n'


class Page:
    def __init__(self):
        with open(os.path.join(ARGUMENTS.root, "docs/cuda-in-ci.md"), encoding="utf-8") as file:
            self.text = file.read()

    def block(self, comment, language):
        """The only block behind a comment."""
        (found,) = re.findall(rf"<!-- {re.escape(comment)} -->\n```{language}\n(.*?)```\n", self.text, re.DOTALL)
        return found


class CiPage(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.installed = os.path.join(cls.folder.name, "installed")
        subprocess.run(["cmake", "--install", ARGUMENTS.build, "--prefix", cls.installed], check=True,
                       capture_output=True, timeout=SECONDS)
        cls.page = Page()
        cls.source = cls.page.block("file: add_test.cu", "cuda")

    def project(self, source):
        """A checkout of the page's project with the release's packages, and the tools beside it."""
        folder = self.enterContext(tempfile.TemporaryDirectory())
        files = {"add_test.cu": source, **{name[2:]: "" for name in PACKAGES}}
        for name, text in files.items():
            path = os.path.join(folder, "project", name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        os.mkdir(f"{folder}/home")
        os.mkdir(f"{folder}/bin")
        for name, text in (("apt-get", APT_GET), ("sudo", SUDO),
                           ("nvcc", f'#!/bin/sh\nexec "{ARGUMENTS.nvcc}" "$@"\n')):
            with open(os.open(f"{folder}/bin/{name}", os.O_WRONLY | os.O_CREAT, 0o755), "w", encoding="utf-8") as file:
                file.write(text)
        return folder

    def run_job(self, commands, source):
        """As the services do: one shell, which ends at the first failure."""
        folder = self.project(source)
        env = {"HOME": f"{folder}/home", "LANG": "C.UTF-8", "INSTALLED": f"{folder}/packages",
               "PATH": f"{folder}/bin:{self.installed}/bin:/usr/local/bin:/usr/bin:/bin"}
        done = subprocess.run(["bash", "-e", "-o", "pipefail", "-c", "\n".join(commands)], env=env, text=True,
                              cwd=f"{folder}/project", capture_output=True, timeout=SECONDS, stdin=subprocess.DEVNULL)
        with open(env["INSTALLED"], encoding="utf-8") as file:
            installed = set(file.read().split())
        return done, installed

    def check_job(self, commands, packages):
        done, installed = self.run_job(commands, self.source)
        self.assertEqual((done.returncode, done.stdout), (0, "passed\n"), done.stderr)
        self.assertEqual(installed, PACKAGES | packages)

    def test_github_example(self):
        text = self.page.block("seven lines: github", "yaml")
        self.assertEqual(len(text.splitlines()), 7)
        workflow = yaml.safe_load(text)
        # YAML 1.1 reads the key `on` as true.
        self.assertEqual((workflow.pop(True), list(workflow)), ("push", ["jobs"]))
        (job,) = workflow["jobs"].values()
        self.assertEqual(sorted(job), ["runs-on", "steps"])
        checkout, command = job["steps"]
        self.assertEqual((list(checkout), list(command)), (["uses"], ["run"]))
        self.check_job([command["run"]], {"nvidia-cuda-toolkit"})

    def test_gitlab_example(self):
        text = self.page.block("seven lines: gitlab", "yaml")
        self.assertEqual(len(text.splitlines()), 7)
        (job,) = yaml.safe_load(text).values()
        self.assertEqual(sorted(job), ["image", "script"])
        self.assertTrue(all(isinstance(command, str) for command in job["script"]))
        self.check_job(job["script"], set())
        for kernel, said in (("b[i] -= a[i];", r"^FAILED: b\[0\] is 1\n$"),
                             ("b[i + (1 << 30)] = a[i];", "^FAILED: an illegal memory access")):
            wrong = self.source.replace("b[i] += a[i];", kernel)
            self.assertNotEqual(wrong, self.source)
            done, _ = self.run_job(job["script"], wrong)
            self.assertEqual(done.returncode, 1)
            self.assertRegex(done.stdout, said)
        self.assertIn("which is no device memory; block (0,0,0) thread (0,0,0)", done.stderr)

    def test_cache_of_gitlab_example(self):
        text = self.page.block("seven lines: gitlab", "yaml") + self.page.block("in the job: gitlab", "yaml")
        (job,) = yaml.safe_load(text).values()
        self.assertEqual(sorted(job), ["before_script", "cache", "image", "script", "variables"])
        (variable, place), = job["variables"].items()
        self.assertEqual((variable, place), ("XDG_CACHE_HOME", "$CI_PROJECT_DIR/" + job["cache"]["paths"][0].rstrip("/")))
        # A cache comes back with modes that gpurun does not accept, and before_script mends that.
        run = f"{job['script'][-1]} 2>&1; echo ---"
        done, _ = self.run_job([*job["script"][:-1], f"export CI_PROJECT_DIR=$PWD\nexport {variable}={place}",
                                *job["before_script"], run, "chmod -R a+rwX .cache", run, *job["before_script"], run],
                               self.source)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        refused = "compiled kernels are not kept"
        self.assertEqual([refused in each for each in done.stdout.split("---\n")[:3]], [False, True, False],
                         done.stdout)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *LEFT], verbosity=2)
