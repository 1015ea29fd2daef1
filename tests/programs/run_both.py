#!/usr/bin/env python3
"""Runs a program natively on the emulated device and through gpurun, and compares the two.

The native run is the reference: the same program, with our software driver from LD_LIBRARY_PATH and
without gpurun. Exit status and output must agree, except for lines with times. Some programs leave
the order of lines open (blocks of one kernel that print). An option names those lines, and they
then agree in any order. Each must still appear as often, at a place of such a line.

usage: run_both.py --build DIR [options] -- PROGRAM ARG...
Exit status 0: agreed; 1: did not; 77: something is missing (reported), so the test is skipped.
"""
import argparse
import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile

ABORTED = 128 + signal.SIGABRT  # As an exit status.


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--build", required=True, help="the build folder")
    parser.add_argument("--ignore", help="output lines that match may differ")
    parser.add_argument("--any-order", metavar="PATTERN",
                        help="output lines that match may change places with one another")
    parser.add_argument("--expect", action="append", default=[], help="must match in the output")
    parser.add_argument("--log", action="append", default=[],
                        help="stderr must have lines that match, the same in both runs")
    parser.add_argument("--status", type=int, default=0, help="the exit status that is right")
    parser.add_argument("--native-only", action="store_true")
    parser.add_argument("--forwarded-only", action="store_true")
    parser.add_argument("--null-device", action="store_true",
                        help="forwarded only, to the driver whose kernels do nothing")
    parser.add_argument("--driver", help="forwarded only, to a driver of the test's own")
    parser.add_argument("--real", action="store_true",
                        help="on this machine's GPU and NVIDIA's driver, in place of the emulated device")
    parser.add_argument("--needs", action="append", default=[], help="a file without which to skip")
    parser.add_argument("--unset", action="append", default=[], help="environment not passed on")
    parser.add_argument("--env", action="append", default=[], metavar="K=V")
    parser.add_argument("--native-preload", metavar="LIBRARY",
                        help="what gpurun loads by itself where the device is emulated")
    parser.add_argument("--native-env", action="append", default=[], metavar="K=V",
                        help="what gpurun sets by itself then")
    parser.add_argument("--gpurun", action="append", default=[], help="further option of gpurun")
    parser.add_argument("--record", help="the program's name on the coverage page")
    parser.add_argument("command", nargs="+")
    args = parser.parse_args()
    if args.null_device:
        args.driver = os.path.join(os.path.abspath(args.build), "tests/drivers/null/libcuda.so.1")
    args.record = args.record or os.path.basename(args.command[0])
    return args


def environment(args):
    env = {k: v for k, v in os.environ.items() if not k.startswith("GPURUN_") and k not in args.unset}
    # Kernel tables, code images and objects are separate from the user's.
    env["HOME"] = os.path.join(os.path.abspath(args.build), "home")
    env["XDG_CACHE_HOME"] = os.path.join(env["HOME"], ".cache")
    os.makedirs(env["XDG_CACHE_HOME"], exist_ok=True)
    for setting in args.env:
        key, _, value = setting.partition("=")
        env[key] = value
    if args.status == ABORTED:  # A sanitizer must not report that.
        env["ASAN_OPTIONS"] = env.get("ASAN_OPTIONS", "") + ":handle_abort=0"
    return env


def run(name, command, env, folder):
    print(f"-- {name}: {' '.join(command)}", flush=True)
    done = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True,
                          errors="replace", stdin=subprocess.DEVNULL)
    sys.stdout.write(done.stdout)
    sys.stdout.write(done.stderr)
    if done.returncode < 0:  # A signal's number, as shells and gpurun give it.
        done.returncode = 128 - done.returncode
    print(f"-- {name}: exit status {done.returncode}", flush=True)
    return done


def run_native(args, folder):
    env = environment(args)
    if args.real:
        return run("native", args.command, env, folder)
    library = os.path.join(args.build, "lib/gpurun/emulated")
    if not os.path.exists(os.path.join(library, "libcuda.so.1")):
        sys.exit(f"no driver in {library}")
    env["LD_LIBRARY_PATH"] = ":".join(filter(None, [library, env.get("LD_LIBRARY_PATH")]))
    env.update(setting.split("=", 1) for setting in args.native_env)
    if args.native_preload:
        env["LD_PRELOAD"] = ":".join(filter(None, [env.get("LD_PRELOAD"), args.native_preload]))
    return run("native", args.command, env, folder)


def run_forwarded(args, folder):
    env = dict(environment(args), **recording(args))
    device = ["--device", "real" if args.real else "emulated"]
    if args.driver:
        device = []
        env["GPURUN_DRIVER"] = args.driver
    gpurun = os.path.join(args.build, "bin/gpurun")
    return run("forwarded", [gpurun, *device, "-q", *args.gpurun, "--", *args.command], env, folder)


def recording(args):
    """Records the functions that the program calls, for docs/api-coverage.md
    (driver_abi/apigen/emit_pages.py)."""
    folder = os.path.join(os.path.abspath(args.build), "exercised")
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, args.record + ".json")
    with contextlib.suppress(FileNotFoundError):
        os.remove(path)
    return {"GPURUN_STATS": "1", "GPURUN_STATS_FILE": path}


def comparable(text, ignore, any_order=None):
    lines = [line for line in text.splitlines() if not (ignore and re.search(ignore, line))]
    return in_settled_order(lines, any_order) if any_order else lines


def in_settled_order(lines, pattern):
    """Sorts the lines that match `pattern` within the places of such lines."""
    matching = iter(sorted(line for line in lines if re.search(pattern, line)))
    return [next(matching) if re.search(pattern, line) else line for line in lines]


def logged(pattern, done):
    """Lines of stderr that match, without gpurund's prefix that names the worker."""
    lines = (re.sub(r"^gpurun-worker\[\d+\]: ", "", line) for line in done.stderr.splitlines())
    return [line for line in lines if re.search(pattern, line)]


def complaints(args, name, done):
    if done.returncode != args.status:
        yield f"{name}: exit status {done.returncode}, expected {args.status}"
    for pattern in args.log:
        if not logged(pattern, done):
            yield f"{name}: no line on stderr matches {pattern!r}"
    for pattern in args.expect:
        if not re.search(pattern, done.stdout, re.MULTILINE):
            yield f"{name}: nothing in the output matches {pattern!r}"


def main():
    args = parse()
    for needed in args.needs:
        if not os.path.exists(needed):
            print(f"skipped: {needed} is missing")
            return 77
    runs = {}
    with tempfile.TemporaryDirectory() as folder:
        if not (args.forwarded_only or args.driver):
            runs["native"] = run_native(args, folder)
    with tempfile.TemporaryDirectory() as folder:
        if not args.native_only:
            runs["forwarded"] = run_forwarded(args, folder)
    wrong = [line for name, done in runs.items() for line in complaints(args, name, done)]
    if len(runs) == 2:
        native, forwarded = (comparable(runs[n].stdout, args.ignore, args.any_order)
                             for n in ("native", "forwarded"))
        if native != forwarded:
            differing = next((i for i, (a, b) in enumerate(zip(native, forwarded)) if a != b),
                             min(len(native), len(forwarded)))
            wrong.append("output differs from line "
                         f"{differing + 1}: native {native[differing:differing + 1]}, "
                         f"forwarded {forwarded[differing:differing + 1]}")
        for pattern in args.log:
            if logged(pattern, runs["native"]) != logged(pattern, runs["forwarded"]):
                wrong.append(f"the lines on stderr that match {pattern!r} differ")
    for line in wrong:
        print(f"WRONG: {line}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
