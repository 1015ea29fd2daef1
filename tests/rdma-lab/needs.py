"""Needs: the programs of the machine that the laboratory needs, and the Debian packages that have them."""
import glob
import platform
import shutil

PROGRAMS = {
    "qemu-system-x86_64": "qemu-system-x86", "busybox": "busybox-static", "setpriv": "util-linux", "chrt": "util-linux",
    "ip": "iproute2", "tc": "iproute2", "rdma": "iproute2",
    "ibv_devinfo": "ibverbs-utils", "ibv_asyncwatch": "ibverbs-utils",
    "ib_send_lat": "perftest", "ib_write_bw": "perftest",
}
PROVIDER = "/usr/lib/*/libibverbs/librxe-*.so"


def missing_programs():
    """Returns what the laboratory needs and the machine lacks, or "" where it lacks nothing."""
    if platform.machine() != "x86_64":
        return "an x86-64 machine, because its guests run the programs of the build"
    packages = {package for program, package in PROGRAMS.items() if shutil.which(program) is None}
    if not glob.glob(PROVIDER):
        packages.add("ibverbs-providers")
    return f"Debian's {', '.join(sorted(packages))}" if packages else ""
