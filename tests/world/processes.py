"""Looks at processes from outside, and bounded waits for what nothing would tell us of."""
import os
import select
import time

from .arguments import SECONDS


def wait(condition, seconds=SECONDS):
    """Whether the condition comes true in time; asks again often."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        select.select([], [], [], 0.01)
    return True


def until(condition, what):
    """Waits until the condition holds; there is nothing to wait on that would tell."""
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
    """Its words; empty when it is over. One that execs or ends has none yet or any more, for a moment."""
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
    """Whether that worker waits for a lease: its command line says so until it has one."""
    return "--spare" in command_line(pid)


def server_of(gpurun_pid):
    for child in children(gpurun_pid):
        if name_of(child) == "gpurund":
            return child
    return None


def can_be(uid):
    """Whether this process could make one of that user and group."""
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
    """Whether a gpurund that is told nothing can give its workers users of their own."""
    return os.geteuid() != 0 or (can_be(2_000_000_000) and can_be(2_000_004_095))
