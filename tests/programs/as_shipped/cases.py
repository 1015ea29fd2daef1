"""Cases: named cases of this folder's programs, each compared with the CPU, with a line for each."""
import os
import sys
import time
import traceback

try:
    import numpy
except ImportError:  # Clients that compare text do without.
    numpy = None

CASES = []


def case(function):
    CASES.append(function)
    return function


def close(got, right, tolerance=1e-5):
    """The device's array equals NumPy's, relative to its largest value."""
    got, right = numpy.asarray(got), numpy.asarray(right)
    if got.shape != right.shape:
        raise AssertionError(f"shape {got.shape}, not {right.shape}")
    largest = max(1e-30, float(numpy.max(numpy.abs(right), initial=0)))
    wrong = ~(numpy.abs(got - right) <= tolerance * largest)  # Not a number, too.
    if numpy.any(wrong):
        at = tuple(int(index[0]) for index in numpy.nonzero(wrong))
        raise AssertionError(f"value {at} is {got[at]}, not {right[at]}")


def equal(got, right):
    got, right = numpy.asarray(got), numpy.asarray(right)
    if got.shape != right.shape or not numpy.array_equal(got, right):
        raise AssertionError(f"{got.reshape(-1)[:8]}, not {right.reshape(-1)[:8]}")


def processor_seconds():
    """Of this process and of its children that have ended."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def main():
    """Runs all cases, or the named ones. The exit status is 1 if one of them failed."""
    failed = 0
    wanted = set(sys.argv[1:])
    unknown = wanted - {function.__name__ for function in CASES}
    if unknown:
        sys.exit(f"no case {', '.join(sorted(unknown))}")
    for function in CASES:
        name = function.__name__
        if wanted and name not in wanted:
            continue
        started, used = time.monotonic(), processor_seconds()
        try:
            function()
            verdict = "right"
        except BaseException as error:  # pylint: disable=broad-except
            failed += 1
            verdict = f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"
            traceback.print_exc()
        print(f"{name}: {verdict} ({time.monotonic() - started:.1f} s, "
              f"{processor_seconds() - used:.1f} s of processors)", flush=True)
    print(f"{failed} failed" if failed else "PASSED")
    sys.exit(1 if failed else 0)
