#!/usr/bin/env python3
"""Programs: runs programs and frameworks as their publishers ship them, natively on the emulated
device and through gpurun. Each case of a program compares with a reference on the CPU.

catalog.json lists the programs, with what each needs. NAME_client.py has the cases of one. Wheels go
into a virtual environment for each program, below the folder, once. Programs of Debian come from the
machine. A program that lacks something is a skip with the reason.

The folder keeps the results (rows.json), so that a run of one program leaves the rows of the others.
Rows that the folder lacks come from the file of --json. A row has the processor's seconds of each run,
with all processes, and the machine's load at its end.

usage: programs.py --build DIR [--folder DIR] [--page FILE] [--json FILE] [--way WAY] [--large] [--cold]
                   [--seconds N] [--cases A,B] [--list] [PROGRAM ...]
Exit status 0: each case is right; 1: one is not; 2: wrong usage; 77: nothing could run.
"""
import argparse
import collections
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]
import both_ways  # noqa: E402  (the path must be set first)
import fetching  # noqa: E402
import page  # noqa: E402

CUDA = os.environ.get("CUDA_PATH", "/usr/local/cuda")
WAYS = {"native": "--native-only", "forwarded": "--forwarded-only"}


class Missing(Exception):
    """What a program lacks on this machine."""


def catalog():
    with open(os.path.join(HERE, "catalog.json"), encoding="utf-8") as stream:
        return json.load(stream)["programs"]


def parse(words, programs):
    parser = argparse.ArgumentParser(prog="programs", description=__doc__.splitlines()[0])
    parser.add_argument("program", nargs="*", help="programs of the list; default: all that are not large")
    parser.add_argument("--build", default="build/release", help="the build folder; default: build/release")
    parser.add_argument("--folder", help="where environments and results are kept; default: BUILD/programs")
    parser.add_argument("--page", help="write the table into this page, between its marks")
    parser.add_argument("--json", help="write the rows into this file")
    parser.add_argument("--way", choices=[*WAYS, "both"], default="both")
    parser.add_argument("--large", action="store_true", help="also programs with more than 1 GB to fetch")
    parser.add_argument("--cold", action="store_true", help="begin each run without caches of compiled kernels")
    parser.add_argument("--seconds", type=int, default=2400, help="limit of each run; default: 2400")
    parser.add_argument("--cases", help="only these cases of the programs, with commas between")
    parser.add_argument("--list", action="store_true", help="print the programs with their packages")
    args = parser.parse_args(words)
    unknown = [name for name in args.program if name not in programs]
    if unknown:
        parser.error(f"no program {', '.join(unknown)} (there are {', '.join(programs)})")
    args.build = os.path.abspath(args.build)
    args.folder = os.path.abspath(args.folder or os.path.join(args.build, "programs"))
    args.program = args.program or [name for name, each in programs.items() if args.large or not each.get("large")]
    return args


def filled(text, folder):
    site = sysconfig.get_path("purelib", vars={"base": os.path.join(folder, "venv")})
    return text.replace("{folder}", folder).replace("{site}", site).replace("{cuda}", CUDA)


def prepare(entry, folder, environment):
    """Makes the program's environment. Returns the interpreter of its client."""
    for needed in entry.get("needs", []):
        if not os.path.exists(filled(needed, folder)):
            raise Missing(f"{filled(needed, folder)} is missing")
    for package in entry.get("debian", []):
        if shutil.which(package) is None:
            raise Missing(f"{package} is not installed (apt-get install {package})")
    packages = entry.get("packages", [])
    if not packages:
        return sys.executable
    ready = os.path.join(environment, "ready")
    wanted = "\n".join(packages)
    if not os.path.exists(ready) or open(ready, encoding="utf-8").read() != wanted:
        shutil.rmtree(environment, ignore_errors=True)
        install = fetching.make_environment(environment)
        # PyCUDA is compiled, for the CUDA of these variables.
        variables = {key: filled(value, folder) for key, value in entry.get("environment", {}).items()}
        done = subprocess.run([*install, "--no-cache-dir", *packages], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors="replace", stdin=subprocess.DEVNULL,
                              env={**os.environ, **variables})
        if done.returncode != 0:
            raise Missing("could not be fetched: " + fetching.reason(done.stdout))
        with open(ready, "w", encoding="utf-8") as stream:
            stream.write(wanted)
    return os.path.join(environment, "bin/python")


@contextlib.contextmanager
def home_of(cold):
    """Options for a run's home. A cold one is empty: the caches of gpurun, of the emulated device and
    of tool chains start there, or in its folder for temporary files."""
    if not cold:
        yield []
        return
    with tempfile.TemporaryDirectory(prefix="programs-", ignore_cleanup_errors=True) as home:
        places = {"HOME": home, "XDG_CACHE_HOME": home + "/.cache", "TMPDIR": home + "/tmp"}
        for place in places.values():
            os.makedirs(place, exist_ok=True)
        yield [word for key, place in places.items() for word in ("--env", f"{key}={place}")]


def processor_seconds():
    """Of the processes that have ended and were waited for, with their own."""
    used = os.times()
    return used.children_user + used.children_system


def options(entry, folder, build):
    words = ["--env", "PYTHONDONTWRITEBYTECODE=1", "--unset", "PYTHONPATH"]
    for key, value in entry.get("environment", {}).items():
        words += ["--env", f"{key}={filled(value, folder)}"]
    for key, value in entry.get("native", {}).items():
        words += ["--native-env", f"{key}={filled(value, folder)}"]
    if "preload" in entry:
        words += ["--native-preload", ":".join(os.path.join(build, "lib/gpurun/client", library)
                                               for library in entry["preload"].split(":"))]
    return words


def judged(output, wanted):
    """The client's verdict on each case, with its seconds, and those of processors in its processes.
    A case that it does not name has none."""
    cases = {}
    pattern = r"(?m)^(\w+): (.*) \((\d+\.\d) s, (\d+\.\d) s of processors\)$"
    for name, verdict, seconds, processors in re.findall(pattern, output):
        cases[name] = {"verdict": verdict, "seconds": float(seconds), "processor_seconds": float(processors)}
    for name in wanted:
        cases.setdefault(name, {"verdict": "no verdict", "seconds": None})
    return cases


def trips(build, record):
    """Round trips of the forwarded run's processes. `read`: copies that brought bytes from the device, or
    that say so by their name, because the device itself may move the bytes. `most`: the three functions
    that made most of the trips. In cuLaunchHostFunc no thread of the program waits."""
    try:
        with open(os.path.join(build, "exercised", record + ".json"), encoding="utf-8") as stream:
            processes = [json.loads(line) for line in stream]
    except (OSError, ValueError):
        return None
    functions = [each for process in processes for each in process["functions"]]
    fences = collections.Counter()
    for each in functions:
        if each["name"] != "cuLaunchHostFunc":
            fences[each["name"]] += each["fences"]
    return {"all": sum(process["blocking_round_trips"] for process in processes),
            "read": sum(each["entries"] if each["name"].startswith("cuMemcpyDtoH") else each["calls"]
                        for each in functions
                        if each["received_bytes"] > 0 or each["name"].startswith("cuMemcpyDtoH")),
            "most": [[name, count] for name, count in fences.most_common(3) if count]}


def cases_of(name):
    with open(os.path.join(HERE, name + "_client.py"), encoding="utf-8") as stream:
        return re.findall(r"(?m)^@case\ndef (\w+)", stream.read())


def run(name, entry, args):
    """Runs the program each way. Returns its row."""
    folder = os.path.join(args.folder, name)
    os.makedirs(folder, exist_ok=True)
    python = prepare(entry, folder, os.path.join(args.folder, entry.get("venv", name), "venv"))
    wanted = args.cases.split(",") if args.cases else cases_of(name)
    row = {"packages": entry.get("packages", []) or entry["debian"], "cases": {}, "stand": both_ways.stand(),
           "cold": args.cold, "processor_seconds": {}, "load": {}}
    command = [python, "-W", "ignore", os.path.join(HERE, name + "_client.py"), *(wanted if args.cases else [])]
    for way, option in WAYS.items():
        if args.way not in (way, "both"):
            continue
        record = "as_shipped_" + name
        before = processor_seconds()
        with home_of(args.cold) as home:
            outcome = both_ways.judge(args.build, record, [*options(entry, folder, args.build), *home, option],
                                      command, args.seconds)
        row["processor_seconds"][way] = round(processor_seconds() - before, 1)
        row["load"][way] = round(os.getloadavg()[1], 1)
        with open(os.path.join(folder, way + ".log"), "w", encoding="utf-8") as stream:
            stream.write(outcome.output)
        for case, verdict in judged(outcome.output, wanted).items():
            row["cases"].setdefault(case, {})[way] = verdict
        if way == "forwarded":
            row["trips"] = trips(args.build, record)
        if not outcome.right:
            row.setdefault("failures", {})[way] = outcome.text
            print(outcome.output[-4000:], file=sys.stderr)
    return row


def right(row):
    return not row.get("failures") and all(each["verdict"] == "right" for case in row["cases"].values()
                                           for each in case.values())


def main(words):
    programs = catalog()
    args = parse(words, programs)
    if args.list:
        for name, entry in programs.items():
            print(f"{name:16} {' '.join(entry.get('packages', []) or entry['debian'])}")
        return 0
    if not os.path.exists(os.path.join(args.build, "bin/gpurun")):
        print(f"programs: there is no {args.build}/bin/gpurun: build it first (tools/quickstart)", file=sys.stderr)
        return 2
    rows = page.Rows(os.path.join(args.folder, "rows.json"), args.json)
    ran, wrong = 0, 0
    for name in args.program:
        try:
            row = run(name, programs[name], args)
        except Missing as missing:
            print(f"skipped: {name}: {missing}", flush=True)
            continue
        ran += 1
        wrong += not right(row)
        if args.way == "both" and not args.cases:
            rows.take(name, row)
        print("\n".join(page.lines_of(name, row)), flush=True)
    if args.page:
        page.write(args.page, rows.all())
    if args.json:
        with open(args.json, "w", encoding="utf-8") as stream:
            json.dump(rows.all(), stream, indent=1, sort_keys=True)
            stream.write("\n")
    if not ran:
        return fetching.SKIPPED
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
