#!/usr/bin/env python3
"""Lab: a RoCE network on a machine without RDMA hardware. QEMU boots one guest or two, without KVM, on
Debian's kernel. Its driver rxe makes RDMA devices of network interfaces. A guest sees the root of this
machine, where its changes stay in its memory: the build, Python and all programs are at their paths.

usage: lab.py --build BUILD [--memory MIB] [--seconds N] [--processors N] COMMAND [WORD ...]

Runs the command in a guest with two RDMA devices (guest/network_pair.sh), prints its output and ends with its
exit status. Ends with 77 and a reason where something is missing. Tests use run() and run_two().
"""
import argparse
import collections
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time

import debian_kernel
import initramfs
import needs
import time_stamps

HERE = os.path.dirname(os.path.abspath(__file__))
SKIPPED = 77  # As ctest's SKIP_RETURN_CODE.
DEADLINE = 124  # Exit status of a script that the end of its time has ended, as timeout(1) has it.
MEMORY_MIB = 1024
SECONDS = 600  # A bound for busy machines. A guest boots in 5 s on an idle one.
APPEND = ("console=ttyS0 quiet loglevel=4 panic=-1 mitigations=off nokaslr no_timer_check tsc=reliable "
          "random.trust_cpu=on cryptomgr.notests audit=0 apparmor=0 rcupdate.rcu_expedited=1")
# `seconds`: from the guest's start to its end.
Outcome = collections.namedtuple("Outcome", "status output seconds")


class LabError(RuntimeError):
    """A guest that ended before its script did. The text has the end of its console."""


def missing(build):
    """Returns why no guest can run here, or ""."""
    lacks = needs.missing_programs()
    if not lacks and not os.path.exists(debian_kernel.folder(build)):
        lacks = "Debian's kernel, which the test rdma_lab_kernel fetches"
    return f"the laboratory needs {lacks}" if lacks else ""


def run(script, *, build, **options):
    """Runs a shell script in a guest with two RDMA devices, rxa and rxb (guest/network_pair.sh), as root and
    in this process's working directory. Returns its Outcome. Options: `seconds` is the deadline for all,
    after which the status is DEADLINE. `memory_mib`, `processors`. `environment`: further variables of the
    script. Raises LabError when the guest ends without a result. Blocks until the guest has ended."""
    return boot([script], build, "pair", **options)[0]


def run_two(first, second, *, build, **options):
    """Runs the scripts in two guests with a wire between them (guest/network_wire.sh). Returns both Outcomes.
    The guests meet by files in $LAB_SHARED (guest/meet)."""
    return boot([first, second], build, "wire", **options)


def boot(scripts, build, network, *, seconds=SECONDS, memory_mib=MEMORY_MIB, processors=1, environment=None):
    kernel = debian_kernel.folder(build)
    variables = {"LAB_FOLDER": HERE, "LAB_NETWORK": network, "LAB_DIRECTORY": os.getcwd(),
                 "LAB_GUESTS": " ".join(map(str, range(len(scripts)))), **(environment or {})}
    with tempfile.TemporaryDirectory(prefix="gpurun-lab-") as shared:
        initramfs.write(kernel, os.path.join(shared, "initramfs"))
        save(shared, "environment",
             "".join(f"{name}={shlex.quote(value)}\n" for name, value in variables.items()))
        guests = []
        try:
            begin = time.monotonic()
            for number, script in enumerate(scripts):
                save(shared, f"script.{number}", script + "\n")
                guests.append(Guest(number, len(scripts), kernel, shared, memory_mib, processors))
            return [guest.outcome(begin, seconds) for guest in guests]
        finally:
            for guest in guests:
                guest.kill()


def save(folder, name, text):
    with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
        file.write(text)


def append(number):
    """The kernel's command line."""
    return f"{APPEND} tsc_early_khz={time_stamps.khz()} lab.guest={number}"


class Guest:
    """One QEMU. Dies with the thread that made it."""

    def __init__(self, number, guests, kernel, shared, memory_mib, processors):
        self.number, self.shared = number, shared
        with open(self.path("qemu"), "wb") as said:
            self.process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "--", "qemu-system-x86_64", *DEVICES,
                 "-smp", str(processors), "-m", str(memory_mib), "-kernel", os.path.join(kernel, "image"),
                 "-initrd", os.path.join(shared, "initramfs"), "-append", append(number),
                 "-serial", f"file:{self.path('console')}",
                 *folder("lab", shared), *folder("host", "/", ",readonly=on"),
                 *(wire(number, shared) if guests == 2 else ())],
                stdin=subprocess.DEVNULL, stdout=said, stderr=said)

    def path(self, name):
        return os.path.join(self.shared, f"{name}.{self.number}")

    def read(self, name):
        try:
            with open(self.path(name), encoding="utf-8", errors="replace") as file:
                return file.read()
        except FileNotFoundError:
            return ""

    def outcome(self, begin, seconds):
        """Waits for the end of the guest, at most until `seconds` after `begin`."""
        try:
            self.process.wait(max(0, begin + seconds - time.monotonic()))
        except subprocess.TimeoutExpired:
            pass
        took, status = time.monotonic() - begin, self.read("status").strip()
        if status:
            return Outcome(int(status), self.read("output"), took)
        if self.process.poll() is None:
            return Outcome(DEADLINE, self.read("output"), took)
        raise LabError(f"guest {self.number} ended without a result: {self.read('output')[-2000:]}\n"
                       f"QEMU: {self.read('qemu')[-2000:]}\nconsole: {self.read('console')[-4000:]}")

    def kill(self):
        self.process.kill()
        self.process.wait()


DEVICES = ("-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-machine", "q35",
           "-accel", "tcg,thread=multi", "-cpu", "max")


def folder(tag, path, more=""):
    return ("-fsdev", f"local,id={tag},path={path},security_model=none,multidevs=remap{more}",
            "-device", f"virtio-9p-pci,fsdev={tag},mount_tag={tag}")


def wire(number, shared):
    near, far = (os.path.join(shared, f"wire.{end}") for end in (number, 1 - number))
    ends = f"local.type=unix,local.path={near},remote.type=unix,remote.path={far}"
    return ("-netdev", f"dgram,id=wire,{ends}",
            "-device", f"virtio-net-pci,netdev=wire,mac=52:54:00:77:00:0{number + 1},romfile=")


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # With the guest's end.
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--build", required=True)
    parser.add_argument("--memory", type=int, default=MEMORY_MIB)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--processors", type=int, default=1)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    words = parser.parse_args()
    lacks = missing(words.build)
    if lacks:
        print(f"skipped: {lacks}")
        return SKIPPED
    done = run(shlex.join(words.command), build=words.build, memory_mib=words.memory, seconds=words.seconds,
               processors=words.processors)
    sys.stdout.write(done.output)
    print(f"lab: {done.seconds:.1f} s, exit status {done.status}")
    return done.status


if __name__ == "__main__":
    sys.exit(main())
