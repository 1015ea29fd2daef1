#!/usr/bin/env python3
"""Conformance: attempts every one of NVIDIA's samples natively on the emulated device and through
gpurun, and writes the table docs/conformance.md.

A sample passes natively if it ends with status 0 and nothing in its output reports a failure. It
passes forwarded if, moreover, status and output equal those of the native run, except for lines
with times. Each that does not pass has a reason from the closed list of reasons.json. It is an
error when a sample with a reason passes, or fails without a reason or without the text that shows
it.

The folder keeps the results (rows.json, logs), with the version of gpurun that produced them.
`--only` attempts some samples again, and the page shows all with their versions. `--judge` attempts
nothing, and judges the kept results again, after a change of reasons.json.

usage: conformance.py --build DIR [--folder DIR] [--page FILE] [--only PATTERN] [--seconds N] [--judge]
Exit status 0: as in reasons.json; 1: not; 77: the samples could not be fetched.
"""
import argparse
import collections
import fnmatch
import json
import os
import re
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]
import run_both  # noqa: E402
import conformance_page  # noqa: E402
import sample_tree  # noqa: E402
from fetch import fetch  # noqa: E402

# The last pattern is our own, for a kernel that was left out.
FAILED = re.compile(r"\bFAILED\b|\b[Ff]ailed!|Test failed|Result = FAIL|[Vv]erification failed|"
                    r"CUDA error at|[Mm]ismatch at|emulated device: kernel .* cannot run")
# Lines with content that differs from run to run: times, rates, and addresses.
VARIES = re.compile(r"\btimes?\b|\brate\b|\bms\b|msec|\bsec(onds?)?\b|\bs$|[kmgt]i?b/s|samples/s|flop|bandwidth|throughput|"
                    r"elapsed|speed-?up|performance|clock|0x[0-9a-f]{6,}|options per|fps|latency|"
                    r"process id|\bpid\b|CPU executed|^\s+\d+\s+[\d.]+\s*$", re.IGNORECASE)
# Lines of one sample with times.
VARIES_IN = {"simpleStreams": re.compile(r"^(memcopy|kernel|non-streamed|\d+ streams):")}
WAIVED = 2  # EXIT_WAIVED of the samples' helpers.

Run = collections.namedtuple("Run", "status output seconds")


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--build", required=True, help="the build folder")
    parser.add_argument("--nvcc", default="/usr/local/cuda/bin/nvcc")
    parser.add_argument("--folder", help="where the samples are built; default: BUILD/conformance")
    parser.add_argument("--page", help="the page to write")
    parser.add_argument("--only", default="*", help="samples whose CHAPTER/NAME matches")
    parser.add_argument("--seconds", type=int, default=300, help="a run's limit")
    parser.add_argument("--judge", action="store_true", help="attempt nothing")
    args = parser.parse_args()
    args.build = os.path.abspath(args.build)
    args.folder = os.path.abspath(args.folder or os.path.join(args.build, "conformance"))
    args.unset, args.env, args.status = [], [], 0
    args.version = version()
    return args


def ends_within(seconds, command, env, folder, log):
    """Runs it in its own process group, which has gone afterwards. Its output is stdout, then
    stderr, because the order between the two streams is not defined."""
    start = time.monotonic()
    with open(log, "w+", encoding="utf-8", errors="replace") as file, \
            open(log + ".stderr", "w+", encoding="utf-8", errors="replace") as errors:
        process = subprocess.Popen(command, env=env, cwd=folder, stdin=subprocess.DEVNULL, stdout=file,
                                   stderr=errors, start_new_session=True)
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            status = None
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()
        seconds = time.monotonic() - start
        output = ""
        for each in file, errors:
            each.seek(0)
            output += each.read()
        return Run(status, output, seconds)


def native(args, sample, logs):
    env = run_both.environment(args)
    env["LD_LIBRARY_PATH"] = os.path.join(args.build, "lib/gpurun/emulated")
    return ends_within(args.seconds, ["env", *sample.command()], env, sample.folder, logs + ".native")


def forwarded(args, sample, logs):
    command = [os.path.join(args.build, "bin/gpurun"), "--device", "emulated", "-q", "--", "env"]
    return ends_within(args.seconds, command + sample.command(), run_both.environment(args),
                       sample.folder, logs + ".forwarded")


def passes(run):
    return run.status == 0 and not FAILED.search(run.output)


def comparable(run, any_order, varies):
    lines = (line for line in run.output.splitlines() if not line.startswith("gpurun"))
    lines = [line for line in lines if not VARIES.search(line) and not (varies and varies.search(line))]
    return run_both.in_settled_order(lines, any_order) if any_order else lines


def first_difference(a, b, any_order, varies):
    a, b = (comparable(run, any_order, varies) for run in (a, b))
    for one, other in zip(a + [""], b + [""]):
        if one != other:
            return f"native {one!r}, forwarded {other!r}"
    return None if len(a) == len(b) else "more lines in one than in the other"


def shortly(run):
    if run is None:
        return "-"
    if passes(run):
        return f"passes ({run.seconds:.0f} s)"
    if run.status is None:
        return "does not end"
    return "waives itself" if run.status == WAIVED else f"fails (status {run.status})"


def kept_run(word, log):
    """Returns what shortly() made `word` of. None: there was no such run."""
    found = re.match(r"passes \((\d+) s\)|fails \(status (-?\d+)\)|waives itself|does not end", word)
    if not found:
        return None
    output = ""
    for path in log, log + ".stderr":
        if os.path.exists(path):
            with open(path, encoding="utf-8", errors="replace") as file:
                output += file.read()
    status = {"p": 0, "f": int(found.group(2) or 0), "w": WAIVED, "d": None}[word[0]]
    return Run(status, output, int(found.group(1) or 0))


class Attempt:
    """The results of one sample."""

    def __init__(self, sample, any_order):
        self.sample = sample
        self.any_order = any_order  # From samples.json.
        self.native = self.forwarded = None
        self.reason = self.detail = None
        self.differs = None

    def make(self, args, toolchain):
        logs = self.logs(args)
        obstacle = self.sample.obstacle()
        if obstacle:
            self.reason, self.detail = obstacle
            return
        if not self.sample.build(toolchain, logs + ".build"):
            with open(logs + ".build", encoding="utf-8", errors="replace") as file:
                self.native = Run(1, file.read(), 0)
            return
        self.native = native(args, self.sample, logs)
        if self.native.status is None:
            return  # It would also not end when forwarded, because the device is the same.
        self.forwarded = forwarded(args, self.sample, logs)
        self.compare()

    def recall(self, args, row):
        """As make(), but from the results of an earlier run."""
        logs = self.logs(args)
        if not row["attempted"]:
            self.reason, self.detail = row["reason"], row["detail"]
            return
        built = row["forwarded"] != "-" or row["native"] == "does not end"
        self.native = kept_run(row["native"], logs + (".native" if built else ".build"))
        self.forwarded = kept_run(row["forwarded"], logs + ".forwarded")
        self.compare()

    def logs(self, args):
        return os.path.join(args.folder, "logs", self.sample.name)

    def compare(self):
        if self.good_natively() and passes(self.forwarded):
            self.differs = first_difference(self.native, self.forwarded, self.any_order,
                                            VARIES_IN.get(self.sample.name.rpartition("/")[2]))

    def good_natively(self):
        return self.native is not None and self.forwarded is not None and passes(self.native)

    def good(self):
        return self.good_natively() and passes(self.forwarded) and not self.differs

    def explain(self, known, reasons):
        """Uses the known reason. Returns the fault, or None."""
        if self.reason:
            return None
        name = self.sample.name
        entry = known.get(name)
        if self.good():
            return f"{name} passes: its reason can go" if entry else None
        last = self.forwarded if self.good_natively() else self.native
        if not entry:
            said = [line for line in last.output.splitlines() if line.strip()][-1:]
            return f"{name} has no reason: {self.differs or said}"
        self.reason, self.detail = entry["reason"], entry.get("detail", "")
        if self.reason not in reasons:
            return f"{name}: {self.reason!r} is not in the list of reasons"
        shows = entry.get("shows", "")
        if last.status is not None and not re.search(shows, last.output):
            return f"{name}: nothing in its output matches {shows!r}"
        if last.status is None and self.reason != "slow":
            return f"{name}: does not end, but its reason is {self.reason!r}"
        return None

    def row(self, args, problem):
        return {"sample": f"{self.sample.chapter}/{self.sample.name}", "attempted": self.native is not None,
                "native": shortly(self.native), "forwarded": shortly(self.forwarded),
                "passes natively": self.good_natively(), "passes": self.good(), "reason": self.reason,
                "detail": self.detail, "problem": problem, "seconds": args.seconds,
                "version": args.version}


def version():
    """The commit of the sources. `+`: files differ from it."""
    def git(*words):
        return subprocess.run(["git", "-C", HERE, *words], capture_output=True, text=True).stdout.strip()
    return git("rev-parse", "--short=9", "HEAD") + ("+" if git("status", "--porcelain", "-uno") else "")


def main():
    args = parse()
    with open(os.path.join(HERE, "samples.json"), encoding="utf-8") as file:
        chosen = json.load(file)
    any_order = {each["name"]: each.get("any_order") for each in chosen["samples"]}
    with open(os.path.join(HERE, "reasons.json"), encoding="utf-8") as file:
        listed = json.load(file)
    os.makedirs(os.path.join(args.folder, "logs"), exist_ok=True)
    fetch(args.folder, chosen["package"])
    toolchain = sample_tree.Toolchain(args.nvcc, args.folder,
                                      os.path.join(args.build, "lib/gpurun/emulated"))
    kept = conformance_page.Rows(os.path.join(args.folder, "rows.json"))
    wrong = []
    for sample in sample_tree.samples(args.folder):
        if not fnmatch.fnmatch(f"{sample.chapter}/{sample.name}", args.only):
            continue
        attempt = Attempt(sample, any_order.get(f"{sample.chapter}/{sample.name}"))
        before = kept.row(f"{sample.chapter}/{sample.name}")
        if not args.judge:
            attempt.make(args, toolchain)
        elif before is None:
            continue
        else:
            attempt.recall(args, before)
        problem = attempt.explain(listed["samples"], listed["reasons"])
        row = attempt.row(args, problem)
        if args.judge:
            row.update({key: before[key] for key in ("seconds", "version")})
        kept.take(row)
        wrong += [problem] if problem else []
        print("; ".join(word for word in (f"{row['sample']}: {row['native']}", row["forwarded"], row["reason"],
                                          problem and "WRONG: " + problem) if word), flush=True)
    if args.page:
        with open(args.page, "w", encoding="utf-8") as file:
            file.write(conformance_page.page(kept.all(), listed["reasons"]))
    for line in wrong:
        print("WRONG:", line)
    return 1 if wrong else 0


sys.exit(main())
