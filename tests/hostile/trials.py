"""Trials: starts a program of trials (trials.h) under gpurun, and reads its lines."""
import subprocess

import world


def started(server, program, names, **variables):
    return subprocess.Popen([world.GPURUN, "-q", "--timeout", "20s", *server.options(), "--", program, *names],
                            env=world.environment(**variables), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)


def ends(output):
    """Lists of the trial's name, "right" or "WRONG", and its end."""
    return [line.split(": ", 2) for line in output.splitlines()]


def wrong(all_ends):
    return [each for each in all_ends if each[1] != "right"]
