#!/usr/bin/env python3
"""Fetching without network: the fixtures that fetch third-party packages are skips that name what
was missing. They neither fail nor leave a partial result that the next run would take for complete.
A page of docs/results names its commit, day and machine."""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
NOWHERE = "http://127.0.0.1:9"  # The discard port, with no listener.


class WithoutNetwork(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = os.path.join(holder.name, "fetched")
        self.env = {name: value for name, value in os.environ.items()
                    if not name.upper().endswith("_PROXY") and not name.startswith("PIP_")}
        self.env.update(PIP_INDEX_URL=f"{NOWHERE}/simple", PIP_CONFIG_FILE=os.devnull,
                        http_proxy=NOWHERE, CI="true", GPURUN_LARGE_DOWNLOADS="1")

    def fetch(self, script, *words):
        return subprocess.run([sys.executable, "-B", os.path.join(HERE, script), *words],
                              env=self.env, capture_output=True, text=True, timeout=110,
                              stdin=subprocess.DEVNULL)

    def assert_skipped(self, done, what):
        self.assertEqual(done.returncode, 77, done.stdout + done.stderr)
        self.assertRegex(done.stdout, rf"(?m)^skipped: {what}.* could not be fetched: .*([Rr]efused|[Cc]ould not connect)")
        self.assertEqual(done.stderr, "")

    def test_pypi_library_fetch_is_skipped(self):
        done = self.fetch("nvidia_library.py", self.folder, "nvidia-cuda-nvrtc==13.0.88", "90")
        self.assert_skipped(done, "nvidia-cuda-nvrtc==13.0.88 .PyPI.")
        self.assertEqual([name for name in os.listdir(self.folder) if name.startswith("ready")], [])

    def test_pypi_environment_fetch_is_skipped(self):
        done = self.fetch("environment.py", self.folder, "tinygrad==0.14.0", "numpy==2.4.6")
        self.assert_skipped(done, "tinygrad==0.14.0 numpy==2.4.6 .PyPI.")
        self.assertFalse(os.path.exists(os.path.join(self.folder, "ready")))

    def test_large_download_requires_opt_in(self):
        del self.env["GPURUN_LARGE_DOWNLOADS"]
        done = self.fetch("torch/torch_table.py", self.folder)
        self.assertEqual(done.returncode, 77, done.stderr)
        self.assertIn("skipped: PyTorch (3 GB) is fetched only with GPURUN_LARGE_DOWNLOADS=1", done.stdout)
        self.assertFalse(os.path.exists(self.folder))

    def test_cuda_samples_fetch_is_skipped(self):
        samples = os.path.join(HERE, "cuda_samples/samples.json")
        done = self.fetch("cuda_samples/fetch.py", "nvcc", self.folder, samples)
        self.assert_skipped(done, "nvidia-cuda-samples .Debian's contrib.")
        done = self.fetch("cuda_samples/shows_test.py", self.folder, samples)
        self.assertEqual(done.returncode, 77, done.stderr)
        self.assertIn("skipped: the samples are not in", done.stdout)


class ResultPages(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = holder.name
        for name in ("both_ways.py", "fetching.py"):
            shutil.copy(os.path.join(HERE, name), self.folder)

    def git(self, *words):
        who = ["-c", "user.name=test", "-c", "user.email=test@localhost"]
        return subprocess.run(["git", "-C", self.folder, *who, *words], check=True, timeout=60,
                              capture_output=True, text=True).stdout.strip()

    def first_line(self):
        page = os.path.join(self.folder, "page")
        code = f"import both_ways; table = both_ways.Table('heading'); table.finish({page!r})"
        subprocess.run([sys.executable, "-B", "-c", code], cwd=self.folder, check=True, timeout=60)
        with open(page, encoding="utf-8") as stream:
            lines = stream.read().splitlines()
        self.assertEqual(lines[1:], ["heading", "all right"])
        return lines[0]

    def test_page_names_commit_date_and_machine(self):
        machine = rf", \d{{4}}-\d\d-\d\d, {os.cpu_count()} cores$"
        self.git("init", "-q")
        self.git("add", "both_ways.py")
        self.git("commit", "-q", "-m", "one")
        commit = self.git("rev-parse", "--short=12", "HEAD")
        self.assertRegex(self.first_line(), f"^commit {commit}{machine}")
        with open(os.path.join(self.folder, "both_ways.py"), "a", encoding="utf-8") as stream:
            stream.write("# Changed.\n")
        self.assertRegex(self.first_line(), f"^commit {commit}\\+{machine}")


if __name__ == "__main__":
    unittest.main(verbosity=2)
