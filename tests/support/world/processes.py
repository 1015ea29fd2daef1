"""Processes seen from outside, and bounded waits for conditions without a notification."""
import os
import select
import time

from .arguments import SECONDS


def wait(condition, seconds=SECONDS):
    """Returns whether the condition becomes true in time. Polls it."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        select.select([], [], [], 0.01)
    return True


def until(condition, what):
    """Waits until the condition holds. Polls, because nothing notifies."""
    if not wait(condition):
        raise AssertionError(f"never came true: {what}")


def stat_fields(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return None


def status_of(pid):
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        return dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)


def alive(pid):
    fields = stat_fields(pid)
    return fields is not None and fields[0] not in "ZX"


def children(pid):
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            fields = stat_fields(entry)
            if fields is not None and int(fields[1]) == pid and fields[0] not in "ZX":
                found.append(int(entry))
    return found


def running(program):
    """Process ids of those that execute the file `program`."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                if os.readlink(f"/proc/{entry}/exe") == os.path.realpath(program):
                    found.append(int(entry))
            except OSError:
                pass
    return found


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def name_of(pid):
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return ""


def command_line(pid):
    """Returns its words, or nothing when it has ended. During an exec or an exit a process has no
    words for a moment."""
    words = []

    def known():
        try:
            with open(f"/proc/{pid}/cmdline", encoding="utf-8", errors="replace") as file:
                words[:] = file.read().split("\0")[:-1]
        except OSError:
            return True
        return words or not alive(pid)
    wait(known)
    return words


def is_spare(pid):
    """Returns whether that worker waits for a lease. Its command line has the option until then."""
    return "--spare" in command_line(pid)


def server_of(gpurun_pid):
    for child in children(gpurun_pid):
        if name_of(child) == "gpurund":
            return child
    return None


def can_be(uid):
    """Returns whether this process could make one of that user and group."""
    child = os.fork()
    if child == 0:
        try:
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
        except OSError:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def can_lend_users():
    """Returns whether a gpurund with default options can give its workers their own users."""
    return os.geteuid() != 0 or (can_be(2_000_000_000) and can_be(2_000_004_095))
