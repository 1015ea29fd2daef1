"""Faults: what tests in a guest do to its network, processes, limits and files. Those with an end are context
managers, which undo them. A guest is thrown away after its tests, so nothing here spares the machine.

The interfaces va and vb, and their RDMA devices rxa and rxb, are those of network_pair.sh.
"""
import contextlib
import glob
import os
import re
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))
ROCE_PORT = 4791  # UDP port of RoCE v2 (IANA).
# Bytes from the head of IP to the partition key: IP 20, UDP 8, and 2 of the base transport header
# (InfiniBand Architecture Specification, 9.2).
PKEY_AT = 30
SECONDS = 60  # A bound.


def run(*words):
    """Runs a command before all other programs of the guest. While an interface goes down, rxe tries to send
    without end, and would keep the one processor from a command of usual priority for a minute."""
    subprocess.run(("chrt", "--fifo", "1", *words), check=True, timeout=SECONDS)


def new_devices():
    """Makes both RDMA devices anew. Connections and counters of the old ones are gone."""
    for device, interface in (("rxa", "va"), ("rxb", "vb")):
        run("rdma", "link", "del", device)
        run("rdma", "link", "add", device, "type", "rxe", "netdev", interface)


@contextlib.contextmanager
def impaired(device, *netem):
    """What the interface sends is lost or late, as netem's words say it: ("loss", "5%"), ("delay",
    "20ms")."""
    run("tc", "qdisc", "add", "dev", device, "root", "netem", *netem)
    try:
        yield
    finally:
        run("tc", "qdisc", "del", "dev", device, "root")


@contextlib.contextmanager
def link_down(device):
    """The interface is down, and both ends have no link. Programs at this end have no route and fail at once.
    Those at the other end retry, as with a pulled cable."""
    run("ip", "link", "set", device, "down")
    try:
        yield
    finally:
        run("ip", "link", "set", device, "up")
        run("sh", "-e", os.path.join(HERE, "network_pair.sh"), "routes")


@contextlib.contextmanager
def wrong_pkey(device, pkey=0x1234):
    """RDMA packets that the interface sends have another partition key than their receiver's. rxe has one key
    and ignores the index that a program chooses, so the key changes on the way."""
    run("tc", "qdisc", "add", "dev", device, "clsact")
    try:
        run("tc", "filter", "add", "dev", device, "egress", "protocol", "ip",
            "u32", "match", "ip", "dport", str(ROCE_PORT), "0xffff",
            "action", "pedit", "munge", "offset", str(PKEY_AT), "u16", "set", hex(pkey))
        yield
    finally:
        run("tc", "qdisc", "del", "dev", device, "clsact")


def with_memlock(kib):
    """Words that start a command that may lock so many KiB of memory. Root may lock any amount, so the
    command lacks that right (CAP_IPC_LOCK)."""
    limit = str(1024 * kib)
    return ["setpriv", "--bounding-set", "-ipc_lock", "--inh-caps", "-ipc_lock",
            "prlimit", f"--memlock={limit}:{limit}"]


@contextlib.contextmanager
def hidden(*paths):
    """The files are not there."""
    moved = []
    try:
        for path in paths:
            os.rename(path, path + ".hidden")
            moved.append(path)
        yield
    finally:
        for path in moved:
            os.rename(path + ".hidden", path)


def libraries(name):
    """The paths at which the loader finds the library, such as libibverbs.so.1."""
    found = glob.glob(f"/usr/lib/*/{name}") + glob.glob(f"/usr/lib/{name}")
    if not found:
        raise FileNotFoundError(name)
    return found


def interface_counter(device, name):
    with open(f"/sys/class/net/{device}/statistics/{name}", encoding="utf-8") as file:
        return int(file.read())


def packets(device):
    """Packets that the interface has sent."""
    return interface_counter(device, "tx_packets")


def sent_bytes(device):
    """Bytes that the interface has sent, with all heads."""
    return interface_counter(device, "tx_bytes")


def rdma_counter(device, name):
    """A counter of the RDMA device, such as sent_pkts."""
    with open(f"/sys/class/infiniband/{device}/ports/1/hw_counters/{name}", encoding="utf-8") as file:
        return int(file.read())


def bad_pkeys(device):
    """Packets with a wrong partition key that the RDMA device has received."""
    done = subprocess.run(["ibv_devinfo", "-v", "-d", device], check=True, capture_output=True, text=True,
                          timeout=60)
    return int(re.search(r"bad_pkey_cntr:\s*(0x[0-9a-f]+)", done.stdout)[1], 16)


def port_state(device):
    """Such as "ACTIVE" and "DOWN"."""
    with open(f"/sys/class/infiniband/{device}/ports/1/state", encoding="utf-8") as file:
        return file.read().split()[1]
