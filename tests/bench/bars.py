"""Bars: what docs/performance.md requires of each row, and whether the row meets it."""
import os

FUTEX, MEMCPY = "raw futex ping-pong", "memcpy 64 MiB"
PING, STREAM, CIPHER = "raw 64-byte ping-pong", "raw stream x{lanes}", "AES-128-GCM on one core"
AWAKE = ", awake"  # Of ends that do not sleep while they wait.
UNPACED = ", Reno"  # Reno does not hold its own packets back, as BBR does.
BESIDE_A_STREAM = "raw ping-pong beside a stream"
RATES = ("GB/s", "1/s")  # Units of which more is better.


def best(unit, values):
    values = list(values)
    return max(values) if unit in RATES else min(values)


class Bar:
    """Bar of a row. `judge(row)` returns (text, met). `row` is a report.Row: its `value` is the
    best of gpurun's columns, and its `raw` holds the best of each baseline of the same run."""

    def __init__(self, judge, note="", nominal=None):
        self.judge, self.note = judge, note  # The table shows the note beside it.
        # The same bar with the nominal delay instead of the measured one. It is shown, but does not
        # count.
        self.nominal = nominal


def at_most(number, unit, p99=None, note=""):
    def judge(row):
        text = f"<= {number:,g} {unit}"
        met = row.value("p50") <= number
        if p99 is not None:
            text += f", p99 {p99:,g}"
            met = met and row.value("p99") <= p99
        return text, met
    return Bar(judge, note)


def at_least(number):
    return Bar(lambda row: (f">= {number:,.0f}", row.value("p50") >= number))


def ping_of(row):
    """Nanoseconds of the faster kind, because our ends also stay awake for a while (docs/adr/0029)."""
    return min(row.raw[PING + kind]["p50"] for kind in ("", AWAKE))


def of_ping(times, more_us=0):
    def judge(row):
        ping, value = ping_of(row), row.value("p50")
        text = f"{value / ping:.2f} of {times:g} ping-pongs" + (f" + {more_us} us" if more_us else "")
        return text, value <= times * ping + 1000 * more_us
    return Bar(judge)


def of_ping_or(times, more_us):
    """The bar that allows more."""
    def judge(row):
        ping, value = ping_of(row), row.value("p50")
        text = f"{value / ping:.2f} ping-pongs, of {times:g} or {(value - ping) / 1000:.1f} us more, of {more_us}"
        return text, value <= max(times * ping, ping + 1000 * more_us)
    return Bar(judge)


def of_futex_or(times, most_us, more_us=0):
    """A number of microseconds, or of ping-pongs between two ends that sleep in shared memory. The
    one that allows more counts."""
    def judge(row):
        futex, value = row.raw[FUTEX]["p50"], row.value("p50")
        more = f" + {more_us}" if more_us else ""
        text = f"{value / 1000:.2f} of {most_us}{more} us, or {value / futex:.2f} of {times:g} futex ping-pongs{more}"
        return text, value <= max(times * futex, 1000 * most_us) + 1000 * more_us
    return Bar(judge)


def of_memcpy(share):
    def judge(row):
        found = row.value("p50") / row.raw[MEMCPY]["p50"]
        return f"{found:.2f} of {share:g} of memcpy", found >= share
    return Bar(judge)


def fastest_stream(row):
    """(GB/s, connections) of the fastest stream with as many connections as a session had, of the
    faster kind."""
    return max((row.raw[name + kind]["p50"], lanes) for lanes in row.lanes
               for name in (STREAM.format(lanes=lanes),) for kind in ("", UNPACED))


def stream_of(row):
    return fastest_stream(row)[0]


def of_stream(share):
    def judge(row):
        stream, lanes = fastest_stream(row)
        found = row.value("p50") / stream
        return f"{found:.2f} of {share:g} of the stream x{lanes}", found >= share
    return Bar(judge)


def one_trip_and_stream(times, share, kibibytes):
    """For a copy that its caller waits for: at most a round trip plus the bytes at the stream's
    speed."""
    def judge(row):
        nanoseconds = times * ping_of(row) + kibibytes * 1024 / (share * stream_of(row))
        allowed = kibibytes * 1024 / nanoseconds
        return (f">= {allowed:.2f} GB/s: {times:g} ping-pongs + {share:g} of the stream",
                row.value("p50") >= allowed)
    return Bar(judge)


def of_slower(share):
    """With TLS: relative to the stream or the cipher, whichever is slower."""
    def judge(row):
        cipher = row.raw[CIPHER]["p50"]
        found = row.value("p50") / min(stream_of(row), cipher)
        slower = "stream" if stream_of(row) < cipher else "cipher"
        return f"{found:.2f} of {share:g} of the {slower}", found >= share
    return Bar(judge)


def of_native(times):
    def judge(row):
        found = row.value("p50") / row.columns["native"]["p50"]
        return f"{found:.2f} of {times:g} times native", found <= times
    return Bar(judge)


def of_row(name, share):
    """Relative to another row of the same run: never a loss."""
    def judge(row):
        found = row.value("p50") / row.others[name].value("p50")
        return f"{found:.2f} of {share:g} of '{name}'", found >= share
    return Bar(judge)


def of_link(share):
    def judge(row):
        link = row.raw["link"]["p50"]
        return f"{row.value('p50') / link:.2f} of {share:g} of the link", row.value("p50") >= share * link
    return Bar(judge)


def of_fair_share(times, note=""):
    def judge(row):
        fair = row.raw[BESIDE_A_STREAM]["p99"]
        return (f"p99 {row.value('p99') / fair:.2f} of {times:g} fair shares",
                row.value("p99") <= times * fair)
    return Bar(judge, note)


def of_two_posters(processors):
    """The bar of one thread. Its 99th percentile is judged only where each busy thread has a
    processor: both posting threads, the sending thread and the worker. With fewer processors it is
    a time slice of the others."""
    threads = 4
    if processors >= threads:
        return POSTED
    return at_most(200, "ns", note=f"p99 is not judged: {threads} threads have work, on {processors} processors")


POSTED = at_most(200, "ns", p99=1000)
LARGE = ("copy in 64 MiB, pageable", "copy in 64 MiB, pinned", "copy out 64 MiB, pageable",
         "copy out 64 MiB, pinned", "copy in 4 x 16 MiB at once, pinned",
         "copy out 4 x 16 MiB at once, pinned")

BARS = {
    "launch, 8 parameters": POSTED,
    "event record": POSTED,
    "stream wait event": POSTED,
    "event record + stream wait": at_most(400, "ns"),
    "memset async 64 B": POSTED,
    "copy in async 64 B, pinned": POSTED,
    "launches a second": at_least(1e6),
    "launch, 8 parameters, two threads": of_two_posters(len(os.sched_getaffinity(0))),
    "launches a second, two threads together": at_least(1e6),
    "idle context synchronise": of_ping(1.3),
    "idle stream synchronise": of_ping(1.3),
    "idle stream query": of_ping(1.3),
    "launch + stream synchronise": of_ping(1.3, 2),
    "launch + context synchronise": of_ping(1.3, 2),
    "event record + event synchronise": of_ping(1.3, 2),
    "event record + query": of_ping(1.3, 2),
    "event query, completed": at_most(200, "ns"),
    "copy out 4 B": of_ping(1.3),
    "copy out 4 B, pinned, async + synchronise": of_ping(1.3, 2),
    "copy in 4 B, pageable": at_most(1000, "ns"),
    "10 launches + memset + copy out 4 B": of_ping(1.3, 3),
    "event create + destroy": at_most(400, "ns"),
    "stream create + destroy": at_most(400, "ns"),
    "device alloc + free, 64 KiB": at_most(1000, "ns"),
    "pinned host alloc + free, 1 MiB": of_native(1.3),
    "copy in 64 KiB, pinned, one by one": one_trip_and_stream(1.3, 0.8, 64),
    "copy out 64 KiB, pinned, one by one": one_trip_and_stream(1.3, 0.8, 64),
    "copy out 64 KiB, pageable, one by one": one_trip_and_stream(1.3, 0.8, 64),
    "copy in 64 KiB, pageable, one after another": of_stream(0.8),
    "copy in 64 KiB, pinned, one after another": of_stream(0.8),
    "copy out 64 KiB, pinned, one after another": of_stream(0.8),
    **{name: of_stream(0.95) for name in LARGE},
    **{name.replace("64 MiB", "64 MiB of zeros"): of_row(name, 1) for name in LARGE[:4]},
}

# Rows that repeat another row's numbers for a bar of their own, from the table of budgets and not
# from the last table.
SHOWN_AGAIN = {
    "smallest synchronous call: copy out 4 B": ("copy out 4 B", of_ping_or(1.3, 5)),
}

TLS_BARS = {name: of_slower(0.9) for name in LARGE}

# Over shared memory: the smallest synchronous call, waits behind other work, and copies.
SHM_BARS = {
    "copy out 4 B": of_futex_or(1.3, 3),
    **{name: of_futex_or(1.3, 3, 2) for name in (
        "launch + stream synchronise", "launch + context synchronise", "event record + event synchronise",
        "copy out 4 B, pinned, async + synchronise")},
    "10 launches + memset + copy out 4 B": of_futex_or(1.3, 3, 3),
}
SHM_COPY_BARS = {name: of_memcpy(0.9) for name in LARGE if name.endswith("pinned")}

SLOW_LINK_BARS = {
    f"copy {way} 16 MiB of {what}, slow link": of_link(share)
    for way in ("in", "out")
    # A codec must gain where it can, and must not slow down other copies.
    for what, share in (("random bytes", 0.95), ("small numbers", 1), ("zeros", 10))
}
