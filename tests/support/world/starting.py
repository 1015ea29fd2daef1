"""Starting: the number of round trips from a program's first call to its first kernel's result.
gpurun's statistics and its trace of the run are counted, and no time is measured."""
import json
import os
import subprocess
import tempfile

from .arguments import GPUCTL, SECONDS
from .run import environment


# Calls that show that a kernel has run: a wait for it, or a read of its output.
RESULTS = ("cuStreamSynchronize", "cuCtxSynchronize", "cuEventSynchronize", "cuMemcpyDtoH")


def until_first_result(events):
    """The waiting calls of a trace, up to and with the first that brings a kernel's result."""
    slices = [each for each in events if each["ph"] == "X" and "call" in each.get("args", {})]
    calls = {}
    for each in slices:
        if each["cat"] == "call":  # One call of the program may send several.
            first = each["args"]["call"]
            calls.update(dict.fromkeys(range(first, each["args"].get("last_call", first) + 1), each["name"]))
    launched = min(number for number, name in calls.items() if name.startswith("cuLaunchKernel"))
    waited = sorted(each["args"]["call"] for each in slices if each["cat"] == "fence")
    result = next(number for number in waited if number > launched and calls[number].startswith(RESULTS))
    return [calls[number] for number in waited if number <= result]


def start_trips(run):
    """`run` runs the program once with its word as GPURUN_TRACE, and returns its statistics."""
    with tempfile.TemporaryDirectory() as folder:
        traces, out = (os.path.join(folder, name) for name in ("traces", "out"))
        os.mkdir(traces)
        counted = run(traces)
        subprocess.run([GPUCTL, "trace", traces, "-o", out], env=environment(), check=True,
                       capture_output=True, timeout=SECONDS)
        with open(out, encoding="utf-8") as file:
            events = json.load(file)["traceEvents"]
    return counted["attach_round_trips"] + len(until_first_result(events))
