"""Stages: the thread and the stage of the work of each processor sample. Reads the output of `perf
script -F comm,pid,tid,cpu,ip,sym,dso`."""
import collections
import re

HEAD = re.compile(r"^\s*(?P<comm>\S.*?)\s+(?P<pid>-?\d+)/(?P<tid>-?\d+)\s+\[(?P<cpu>\d+)\]")
FRAME = re.compile(r"^\s+[0-9a-f]+\s+(?P<symbol>.*?)\s+\((?P<object>[^()]*(?:\([^()]*\))?)\)$")
CLONE = re.compile(r"(\.(isra|part|constprop|cold)(\.\d+)?)+$")  # Suffixes of a function's clones.
SYSTEM_CALL = re.compile(r"^_*(?:x64_|arm64_|ia32_|se_|do_)?sys_(\w+)$")
OF_LIBC = re.compile(r"^__(?:libc|GI__)_(\w+)$")  # For kernel entries without a frame.
IDLE = "idle"
STAGES_TOLD, LEAST_OF_THREAD = 8, 0.02

# The kernel's frames, the innermost first. The first match names the stage.
KERNEL = (
    ("the kernel's copy", re.compile(r"^(rep_movs_alternative|copy_user_\w+|_?copy_(from|to)_(iter|user)\w*"
                                     r"|memcpy(_orig|_erms)?|copyin|copyout|__memcpy)$")),
    ("fresh pages", re.compile(r"^(clear_page\w*|clear_user\w*|alloc_pages\w*|__alloc_pages\w*|do_anonymous_page)$")),
    ("wake-ups", re.compile(r"^(try_to_wake_up|__wake_up\w*|sock_def_readable|ep_poll_callback|wake_up_q)$")),
    ("the peer's half of TCP", re.compile(r"^(tcp_v[46]_rcv|__do_softirq|handle_softirqs|net_rx_action|do_softirq\w*)$")),
    ("switches", re.compile(r"^(schedule|__schedule|finish_task_switch)$")),
)
CIPHER = re.compile(r"aes|gcm|ghash|^\.\.@\d+\._", re.I)  # The last one: labels of Intel's library, in profiles of older builds.
CRYPTOGRAPHY = re.compile(r"x25519|fe51|sha\d|ossl|openssl|evp|crypto|asn1|ec_|bn_|tls|ssl|rand_|drbg|provider", re.I)
MEMORY = re.compile(r"^(__)?mem(cpy|move|set|cmp)\w*$")
LZ4 = re.compile(r"^LZ4", re.I)


class Sample:
    def __init__(self, comm, pid, tid, cpu):
        self.comm, self.pid, self.tid, self.cpu = comm, pid, tid, cpu
        self.frames = []  # (symbol, object), the innermost first.


def read(lines):
    """The samples that perf script printed, in its order."""
    sample = None
    for line in lines:
        if not line.strip():
            continue
        if frame := FRAME.match(line):
            if sample is not None:
                sample.frames.append((CLONE.sub("", frame["symbol"]), frame["object"]))
        elif head := HEAD.match(line):
            if sample is not None:
                yield sample
            sample = Sample(head["comm"], int(head["pid"]), int(head["tid"]), int(head["cpu"]))
    if sample is not None:
        yield sample


def in_kernel(owner):
    return owner.startswith("[kernel")


def stage_of(sample):
    """Returns for example "sendmsg: the kernel's copy", "the cipher", "page faults: fresh pages",
    "own code", "idle"."""
    if sample.pid == 0:
        return IDLE
    if not sample.frames:
        return "own code"
    if in_kernel(sample.frames[0][1]):
        return stage_in_kernel([symbol for symbol, _ in sample.frames])
    symbol, owner = sample.frames[0]
    if MEMORY.match(symbol):
        return "copies in the process"
    if CIPHER.search(symbol):
        return "the cipher"
    if LZ4.match(symbol):
        return "LZ4"
    if CRYPTOGRAPHY.search(symbol) or "libcrypto" in owner:
        return "cryptography but the cipher"
    if "libc.so" in owner or "libc-" in owner or "ld-linux" in owner or "vdso" in owner:
        return "the C library"
    return "own code"


def stage_in_kernel(symbols):
    """`symbols`: the kernel's frames, and then the program's."""
    inner = next((name for symbol in symbols for name, pattern in KERNEL if pattern.match(symbol)), "")
    for pattern in (SYSTEM_CALL, OF_LIBC):
        for symbol in symbols:
            if call := pattern.match(symbol):
                return f"{call[1]}: {inner or 'the rest'}"
    if any("page_fault" in symbol for symbol in symbols):
        return "page faults" + (f": {inner}" if inner else "")
    if any(symbol.startswith(("asm_sysvec", "sysvec", "asm_common_interrupt", "__irq")) for symbol in symbols):
        return "interrupts"
    return inner or "entering and leaving the kernel"


class Profile:
    """Profile of `seconds` at `hertz` samples a second and processor: the threads that used them,
    and their stages."""

    def __init__(self, samples, seconds, hertz, role_of):
        """`role_of(sample)`: the role of its process: "client", "worker", ..."""
        self.seconds, self.hertz = seconds, hertz
        self.threads = {}  # (role, thread) -> Counter of stages
        self.processors = collections.defaultdict(collections.Counter)  # cpu -> roles
        for sample in samples:
            stage = stage_of(sample)
            if stage == IDLE:  # Not all idle processors are sampled: idle is the rest.
                self.processors[sample.cpu].update()
                continue
            role = role_of(sample)
            self.processors[sample.cpu][role] += 1
            self.threads.setdefault((role, sample.comm), collections.Counter())[stage] += 1

    def share(self, samples):
        """Share of one processor's time."""
        return samples / (self.seconds * self.hertz)

    def lines(self, least=0.03, unit=100, unit_name="%", units=1):
        """One line for each thread with at least `least` of a processor, with its largest stages.
        `unit`, `units`: the unit of a processor's whole time, and its divisor."""
        def told(samples):
            return f"{unit * self.share(samples) / units:.3g}"
        for cpu, roles in sorted(self.processors.items()):
            shares = [(role, self.share(count)) for role, count in roles.most_common()]
            shares.append((IDLE, max(0.0, 1 - sum(share for _, share in shares))))
            yield f"  processor {cpu}: " + ", ".join(
                f"{role} {100 * share:.0f} %" for role, share in shares if share >= 0.01)
        busy = sorted(self.threads.items(), key=lambda item: -sum(item[1].values()))
        for (role, thread), stages in busy:
            whole = sum(stages.values())
            if self.share(whole) < least:
                continue
            parts = ", ".join(f"{stage} {told(count)}" for stage, count in stages.most_common(STAGES_TOLD)
                              if count >= LEAST_OF_THREAD * whole)
            yield f"  {role}, {thread}: {told(whole)} {unit_name} ({parts})"
