"""Time of a bare ping-pong over a delayed link, and the bar that follows from it."""
import socket
import threading
import time

from bars import at_most
from report import one
import world

PINGS, FIRST = 12, 2  # The first pings do not count.


def echo(listener):
    while True:
        try:
            near, _ = listener.accept()
        except OSError:
            return
        with near:
            while word := near.recv(64):
                near.sendall(word)


def link_of(delay):
    return f"raw ping-pong, {delay} ms RTT"


def raw_links(delays):
    """The median of some bare ping-pongs over each link."""
    rows = {}
    listener = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=echo, args=(listener,), daemon=True).start()
    for delay in delays:
        with world.DelayedLink(listener.getsockname()[1], delay / 1000) as link:
            host, port = link.address.split(":")
            with socket.create_connection((host, int(port))) as near:
                taken = []
                for _ in range(PINGS):
                    begin = time.monotonic()
                    near.sendall(bytes(64))
                    near.recv(64)
                    taken.append(1000 * (time.monotonic() - begin))
        rows[link_of(delay)] = {"unit": "ms", **one(sorted(taken[FIRST:])[(PINGS - FIRST) // 2 - 1])}
    listener.close()
    return rows


def bounded(local_ms, trips, delay, raw):
    """Bar of round trips. Each may take as long as a bare ping-pong over the same link, because
    sleeping ends wake late. The row also shows whether the link's own delay for each would be
    enough."""
    def with_trips_of(trip):
        return at_most(round(local_ms + trips * trip, 2), "ms")

    if not delay:
        return with_trips_of(0)
    bar = with_trips_of(max(delay, raw[link_of(delay)]["p50"]))
    bar.nominal = with_trips_of(delay).judge
    return bar
