"""Idle sessions: their use of processors and memory. Also the cost of a fence beside a neighbour
that copies without end."""
import itertools
import os
import statistics
import time

from bars import at_least, at_most, of_fair_share
from calls import SHM
from machine import CLIENT, Held, forwarded_environment
from report import Row, median_of, one
import world

BESIDE = "fence beside a neighbour that saturates"
MANY, LOOKED_AT_S = 256, 10
KEYS = {"Rss": "", "Pss": ", Pss"}  # And their suffix in the names of rows.
CLIENT_MIB, WORKER_MIB, PROCESSOR_PERCENT = 16, 8, 1


def memory_mib(pid, key):
    """Rss: the resident memory of the process. Pss: the same, with shared pages divided among their
    users."""
    with open(f"/proc/{pid}/smaps_rollup", encoding="utf-8") as file:
        for line in file:
            if line.startswith(key + ":"):
                return int(line.split()[1]) / 1024
    return float("nan")


def processor_s(pid):
    process_clock = (~pid << 3) | 2  # As clock_getcpuclockid(3) names it, over all its threads.
    return time.clock_gettime(process_clock)


def parent_of(pid):
    fields = world.stat_fields(pid)
    return int(fields[1]) if fields is not None else 0


def clients_of(pid):
    """Process ids of the bench's clients among `pid` and its descendants. Others may run beside
    them."""
    parents = {client: parent_of(client) for client in world.running(CLIENT)}
    found = {pid}
    while more := {client for client, parent in parents.items() if parent in found} - found:
        found |= more
    return found & parents.keys()


def thread_s(pid, name):
    """Processor time of all its threads with that name, in seconds."""
    found = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/comm", encoding="utf-8") as file:
            if file.read().strip() != name:
                continue
        with open(f"/proc/{pid}/task/{task}/schedstat", encoding="utf-8") as file:
            found += int(file.read().split()[0]) / 1e9
    return found


def idle(machine, server, processes=1, copied=False, **changes):
    return Held(machine.gpurun(server, idle_words(machine, processes, copied)),
                forwarded_environment(server, **changes), processes, some=processes > 1)


def idle_words(machine, processes, copied):
    return machine.words("idle", processes, *(["copied"] if copied else []))


class Memory:
    """Memory of processes in each round, by role and by whether they have copied."""

    def __init__(self):
        self.found = {}  # (role, copied, key) -> MiB

    def look(self, whose, copied, pids):
        for key in KEYS:
            self.found.setdefault((whose, copied, key), []).append(max(memory_mib(pid, key) for pid in pids))

    def of(self, whose, copied, key):
        return statistics.median(self.found[whose, copied, key])

    def rows(self):
        """The worker's memory beside that of the same program on the driver itself."""
        for copied, key in itertools.product((False, True), KEYS):
            after, shared = " after copies" if copied else "", KEYS[key]
            native, client, worker = (self.of(whose, copied, key) for whose in ("native", "client", "worker"))
            rows = (Row(f"memory of an idle client{after}{shared}", "MiB",
                        {"native": one(native), "gpurun": one(client)}),
                    Row(f"memory of its worker{after} beyond the bare driver's{shared}", "MiB",
                        {"gpurun": one(worker - native)}))
            if key == "Rss":
                rows = [row.judge(at_most(bar, "MiB")) for row, bar in zip(rows, (CLIENT_MIB, WORKER_MIB))]
            yield from rows


def given_back(clients):
    """Waits until they use no more than the bound of an idle client. The row shows when they never
    do."""
    world.wait(lambda: max(memory_mib(pid, "Rss") for pid in clients) <= CLIENT_MIB)


def memory_of_one(machine, **changes):
    """Memory of one session: after its first result, and again after copies of 64 MiB either way,
    when it has returned their memory."""
    memory = Memory()
    with machine.server() as server:
        for _, copied in itertools.product(range(min(machine.rounds, 3)), (False, True)):
            with Held(idle_words(machine, 1, copied), machine.native_environment()) as held:
                memory.look("native", copied, [held.process.pid])
            with idle(machine, server, copied=copied, **changes) as held:
                clients = clients_of(held.process.pid)
                if copied and not machine.quick:
                    given_back(clients)
                memory.look("client", copied, clients)
                memory.look("worker", copied, server.workers())
            world.until(lambda: not server.workers(), "its worker ends")
    return memory


def many(machine, own, **changes):
    count = 4 if machine.quick else MANY
    with machine.server() as server, idle(machine, server, count, **changes) as held:
        yield Row(f"{count} idle sessions: begun at once", "", {"gpurun": one(held.ready)}).judge(at_least(count))
        if held.ready < count:
            return
        watched = [server.process.pid, *server.workers()]
        clients = clients_of(held.process.pid)
        begin, before = time.monotonic(), [sum(map(processor_s, pids)) for pids in (watched, clients)]
        time.sleep(0.1 if machine.quick else LOOKED_AT_S)
        taken = time.monotonic() - begin
        after = [sum(map(processor_s, pids)) for pids in (watched, clients)]
        shares = [100 * (late - early) / taken for early, late in zip(before, after)]
        resident = statistics.mean(memory_mib(pid, "Rss") for pid in watched[1:])
        proportional = statistics.mean(memory_mib(pid, "Pss") for pid in watched[1:])
    yield Row(f"{count} idle sessions: of a core, on the server", "%", {"gpurun": one(shares[0])}).judge(
        at_most(PROCESSOR_PERCENT, "%"))
    yield Row(f"{count} idle sessions: of a core, in the clients", "%", {"gpurun": one(shares[1])})
    yield Row(f"{count} idle sessions: each beyond the bare driver", "MiB", {
        "gpurun": one(resident - own)}).judge(at_most(WORKER_MIB, "MiB"))
    yield Row(f"{count} idle sessions: each, shared pages shared out", "MiB", {"gpurun": one(proportional)})


def interference(machine, note, **changes):
    raw, alone, beside = [], [], []
    with machine.server() as server:
        for _ in range(machine.rounds):
            raw.append(machine.raw("free", "contended"))
            alone.append(machine.forwarded(server, "waits", **changes))
            beside.append(machine.forwarded(server, "waits", "beside", **changes))
    raw = median_of(raw)  # The fair share is a median, not a best case.
    columns = {"gpurun": median_of(beside)["copy out 4 B"],
               "alone": median_of(alone)["copy out 4 B"]}
    columns = {title: {key: row[key] for key in ("p50", "p99")} for title, row in columns.items()}
    row = Row(BESIDE, "ns", columns, raw)
    return [row.judge(of_fair_share(2, note))], raw


def measured(machine, note="", **changes):
    """`changes`: changes to the clients' environment."""
    memory = memory_of_one(machine, **changes)
    beside, raw = interference(machine, note, **changes)
    return [*memory.rows(), *many(machine, memory.of("native", False, "Rss"), **changes), *beside], raw


def measure(machine):
    return measured(machine)


def over_shared_memory(machine):
    return measured(machine, "the fair share is that over TCP", **SHM)
