"""Both ways, for the tables of docs/results: fetches wheels of PyPI once, and runs a program
natively on the emulated device and through gpurun. Shows its lines as they come, and keeps them."""
import collections
import datetime
import os
import re
import subprocess
import sys

import fetching

HERE = os.path.dirname(os.path.abspath(__file__))

Outcome = collections.namedtuple("Outcome", "right text output")


def judge(build, record, options, command, seconds):
    """Runs run_both.py with these options. Returns whether all was right, "right" or the fault, and
    all output."""
    try:
        done = subprocess.run([sys.executable, "-B", os.path.join(HERE, "run_both.py"), "--build", build,
                               "--record", record, "--expect", "^PASSED$", *options, "--", *command],
                              capture_output=True, text=True, errors="replace", timeout=seconds)
    except subprocess.TimeoutExpired:
        return Outcome(False, "WRONG: it did not end", "")
    if done.returncode == 0:
        return Outcome(True, "right", done.stdout)
    said = (re.search(r"(?m)^FAILED.*$", done.stdout) or re.search(r"(?m)^.*cuda.*rror.*$", done.stdout)
            or re.search(r"(?m)^WRONG.*$", done.stdout))
    what = said.group() if said else done.stdout[-300:]
    return Outcome(False, "WRONG: " + re.sub(r"/\S*/", "", what)[:100], done.stdout)


def each_way(build, record, command, seconds, options=()):
    """Natively, then forwarded."""
    return [judge(build, record, [*options, way], command, seconds)
            for way in ("--native-only", "--forwarded-only")]


def fetch_wheels(folder, wheels):
    """Installs each wheel alone into folder/WHEEL, once. An existing one is not fetched again."""
    os.makedirs(folder, exist_ok=True)
    for wheel in wheels:
        ready = os.path.join(folder, "ready-" + wheel)
        if os.path.exists(ready):
            continue
        install = fetching.make_environment(os.path.join(folder, "venv"))
        fetching.fetch(f"{wheel} (PyPI)", [*install, "--no-deps", "--no-cache-dir", "--upgrade",
                                               "--target", os.path.join(folder, wheel), wheel])
        with open(ready, "w", encoding="utf-8"):
            pass


def stand():
    """The state that a page describes: the commit (`+`: changed since), the day (UTC) and the
    machine's cores."""
    def git(*words):
        done = subprocess.run(["git", "-C", HERE, *words], capture_output=True, text=True)
        return done.stdout.strip() if done.returncode == 0 else None
    commit = git("rev-parse", "--short=12", "HEAD")
    changed = "+" if git("status", "--porcelain", "--untracked-files=no") else ""
    day = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    return f"commit {commit or 'unknown'}{changed}, {day}, {os.cpu_count()} cores"


class Table:
    def __init__(self, heading):
        self.lines = [heading]
        self.wrong = 0

    def add(self, line, right=True):
        self.wrong += not right
        self.lines.append(line.rstrip())
        print(self.lines[-1], flush=True)

    def finish(self, path=None):
        """Writes the table to `path`. Returns the exit status: 0 if all was right."""
        self.lines.insert(0, stand())
        self.lines.append(f"{self.wrong} wrong" if self.wrong else "all right")
        if path:
            with open(path, "w", encoding="utf-8") as stream:
                stream.write("\n".join(self.lines) + "\n")
        return 1 if self.wrong else 0
