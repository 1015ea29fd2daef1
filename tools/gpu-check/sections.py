"""Sections of gpu-check: each tests one thing of gpurun and this machine's GPU."""
import concurrent.futures
import contextlib
import glob
import json
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import network  # noqa: E402

PROGRAM_SECONDS = 25
GROUP_SECONDS = 12  # The shortest time for a group of the bench.
AT_ONCE = max(1, min(8, (os.cpu_count() or 2) // 2))  # Programs that are only tested for their
                                                      # results.
MODELS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "torch_models.py")


def libraries():
    """Folders with NVIDIA's libraries, which the test programs name without a path."""
    try:
        import torch
        wheels = glob.glob(os.path.join(os.path.dirname(os.path.dirname(torch.__file__)), "nvidia/*/lib"))
    except ImportError:
        wheels = []
    return ":".join([*sorted(glob.glob("/usr/local/cuda/lib64")), *wheels])


def environment():
    return {**os.environ, "LD_LIBRARY_PATH": ":".join(filter(None, [os.environ.get("LD_LIBRARY_PATH"), libraries()]))}


def descendants(pid):
    parents = {}
    for path in glob.glob("/proc/[0-9]*/stat"):
        with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:
            text = file.read()
            parents[int(text.split()[0])] = int(text.rpartition(")")[2].split()[1])
    found = [pid]
    for each in found:
        found += [child for child, parent in parents.items() if parent == each]
    return found


def threads_of(pid):
    """What each thread of a process and its children waits for, from /proc. For a run that hangs."""
    for each in descendants(pid):
        for task in sorted(glob.glob(f"/proc/{each}/task/*")):
            said = []
            for name in ("comm", "wchan", "syscall"):
                with contextlib.suppress(OSError), open(os.path.join(task, name), encoding="utf-8") as file:
                    said.append(file.read().strip().split(" ")[0])
            yield f"{each} {os.path.basename(task)} {' '.join(said)}"


def run(command, seconds, env=None, **options):
    """Returns (status, or None if it did not end, stdout, stderr, seconds)."""
    began = time.monotonic()
    process = subprocess.Popen(command, env=env or environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True, **options)
    try:
        out, err = process.communicate(timeout=max(1, seconds))
        status = process.returncode
    except subprocess.TimeoutExpired:
        threads = "\n".join(["its threads (process, thread, name, waits in, system call):", *threads_of(process.pid)])
        os.killpg(process.pid, signal.SIGKILL)  # The whole group: a kernel that is left would share
                                                # the GPU with the next.
        out, err = process.communicate()
        status, err = None, f"{err}\n{threads}\n"
    return status, out, err, time.monotonic() - began


def gpurun(options, *words):
    return [os.path.join(options.build, "bin/gpurun"), "--device", "real", "-q", *words, "--"]


def machine(options, report, seconds):
    asked = "name,driver_version,memory.total,clocks.max.sm"
    report.fact("GPU", run(["nvidia-smi", f"--query-gpu={asked}", "--format=csv,noheader"], seconds)[1].strip())
    report.fact("cores", os.cpu_count())
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        report.fact("processor", next((line.split(":")[1].strip() for line in file if line.startswith("model name")), "?"))
    report.fact("kernel, libc", f"{platform.release()}, {' '.join(platform.libc_ver())}")
    report.fact("driver's library", " ".join(re.findall(r"libcuda\.so\.1 .*", run(["ldconfig", "-p"], 20)[1])))
    report.fact("user, devices", f"{os.getuid()}, {' '.join(sorted(glob.glob('/dev/nvidia*')))}")
    commit = os.path.join(options.top, "commit")
    if os.path.exists(commit):
        with open(commit, encoding="utf-8") as file:
            report.fact("commit", file.read().strip())


def probe(options, report, seconds):
    words = [os.path.join(options.build, "bin/gpu-probe"), "--json", os.path.join(options.out, "gpu-probe.json"),
             "--table", os.path.join(options.out, "gpu-probe.txt")]
    status, _, said, _ = run(words, seconds)
    for line in said.splitlines():
        report.say("  " + line)
    report.row("gpu-probe", status == 0, "asked" if status == 0 else f"exit status {status}", said)


def first(options, report, seconds):
    """One program, with the log of the server's parts: natively and through gpurun."""
    program = [os.path.join(options.build, "programs/driver_vector_add"),
               os.path.join(options.build, "programs/behaviour_kernels.fatbin")]
    loud = {**environment(), "GPURUN_LOG": "debug"}
    for name, command in (("natively", program), ("through gpurun", [*gpurun(options), *program])):
        status, out, err, taken = run(command, min(seconds, 40), loud)
        report.row(name, status == 0, f"exit status {status}, {taken:.2f} s: {out.strip()[-60:]}", out + err)
        report.log.write(f"==== {name}\n{err[-12000:]}\n")


def one_program(options, test, seconds):
    place = lambda words: [word.replace("{build}", options.build) for word in words]  # noqa: E731
    command = [sys.executable, "-B", os.path.join(options.top, "tests/programs/run_both.py"), "--build", options.build,
               "--real", *place(test["options"]), "--", *place(test["program"])]
    status, out, err, taken = run(command, min(seconds, PROGRAM_SECONDS))
    wrong = re.search(r"(?m)^WRONG: .*$", out)
    what = "right" if status == 0 else "it did not end" if status is None else wrong.group()[7:] if wrong else \
        f"exit status {status}"
    return status == 0, f"{what[:140]} ({taken:.1f} s)", out + err


def programs(options, report, seconds):
    with open(os.path.join(options.top, "both_ways.json"), encoding="utf-8") as file:
        tests = json.load(file)
    until = time.monotonic() + seconds
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        def judge(test):
            left = until - time.monotonic()
            return one_program(options, test, left) if left > 2 else (True, "left out, no time is left", "")
        for test, (right, text, output) in zip(tests, pool.map(judge, tests)):
            report.row(test["name"], right, text, output)


# The transport of each way. Shared memory is the default within a machine.
WAYS = {"native": None, "shm": "shm", "TCP": "tcp"}


def models(options, report, seconds):
    """Each model natively and through gpurun over each transport, one after the other. Numbers must be equal."""
    until = time.monotonic() + seconds
    said = {}
    for at, (way, transport) in enumerate(WAYS.items()):
        env = environment() if transport is None else {**environment(), "GPURUN_TRANSPORTS": transport}
        before = [] if transport is None else gpurun(options, "--stats")
        with tempfile.NamedTemporaryFile(mode="r", suffix=".json") as out:
            command = [*before, sys.executable, "-B", MODELS, out.name]
            status, stdout, err, taken = run(command, (until - time.monotonic()) / (len(WAYS) - at), env)
            rows = [json.loads(line) for line in out.read().splitlines()]
        said[way] = {row["row"]: row for row in rows}
        report.row(f"PyTorch, {way}", status == 0, f"exit status {status}, {taken:.1f} s, {len(rows)} rows",
                   stdout + err)
        report.log.write(f"==== PyTorch, {way}\n{stdout[-3000:]}\n{err[-9000:]}\n")
    for name, row in said["native"].items():
        others = {way: said[way].get(name) for way in WAYS if way != "native"}
        missing = [way for way, other in others.items() if other is None]
        if missing:
            report.row(name, False, f"did not run over {' and '.join(missing)}", native_ms=row["ms"])
            continue
        unequal = [f"; {way}: {other['check']}, natively {row['check']}" for way, other in others.items()
                   if other["check"] != row["check"]]
        times = "".join(f", {other['ms']:9.3f} over {way} ({other['ms'] / row['ms']:.3f})"
                        for way, other in others.items())
        report.row(name, not unequal, f"{row['ms']:9.3f} ms natively{times}{''.join(unequal)}", native_ms=row["ms"],
                   **{f"{way.lower()}_ms": other["ms"] for way, other in others.items()})


def bench(name, groups, *words):
    """One group after the other, as long as there is time, all in one table."""
    def measure(options, report, seconds):
        path = os.path.join(options.out, f"bench-{name}")
        until = time.monotonic() + seconds
        for group in groups:
            if until - time.monotonic() < GROUP_SECONDS:
                report.row(f"bench-{name}: {group}", True, "left out, no time is left")
                continue
            command = [sys.executable, "-B", os.path.join(options.top, "tests/bench/run"), "--build", options.build,
                       "--json", path + ".json", "--table", path + ".txt", "--only", group, *words]
            status, out, err, taken = run(command, until - time.monotonic())
            for line in out.splitlines():
                report.say("  " + line)
            what = "it did not end" if status is None else f"exit status {status}"
            report.row(f"bench-{name}: {group}", status == 0, f"{what}, {taken:.1f} s", out + err)
    return measure


# Name: (what it shows, seconds at most, function).
SECTIONS = {
    "machine": ("what this machine is", 20, machine),
    "probe": ("what NVIDIA's driver does (gpu-probe)", 240, probe),
    "first": ("one program, with what gpurun's parts say", 80, first),
    "programs": ("programs natively and through gpurun, the same output", 200, programs),
    "torch": ("PyTorch: the same numbers, and how long a step takes", 240, models),
    "bench-gpu": ("calls one by one on the GPU", 150,
                  bench("gpu", ("shm-waits", "fences", "posted", "shm-copies", "copies", "objects"), "--device", "real",
                        "--rounds", "3")),
    "network": ("RDMA ports, gpurun beside perftest", 240, network.measure),
    "bench-cores": ("the budgets, on the null device and all these cores", 400,
                    bench("cores", ("mnist", "shm-waits", "shm-copies", "fences", "copies", "tls", "sessions", "shm-sessions",
                                  "start"), "--rounds", "3")),
}
