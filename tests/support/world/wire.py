"""Wire: links that delay bytes, limit them, or split them into odd pieces."""
import os
import subprocess

from .arguments import ARGS, SECONDS

PROGRAM = os.path.join(ARGS.build, "tests/delayed_link")


class DelayedLink:
    """A TCP relay that holds each byte for half of `round_trip_s` in either direction. It delays
    the first bytes of a connection as if the handshake had crossed the link, because connect() to
    it costs nothing. `bytes_per_s`: limit of all connections together in one direction.
    `own_bytes_per_s`: limit of each of them. `seed`: pieces of random sizes are held up to three
    times as long, for each connection by itself, so that one connection overtakes another. `log`: a
    file with the log of the traffic, once the link has ended (delayed_link.cc)."""

    def __init__(self, port, round_trip_s, bytes_per_s=None, seed=None, log="", own_bytes_per_s=None):
        self.process = subprocess.Popen(
            [PROGRAM, str(port), str(round(1e6 * round_trip_s)), str(bytes_per_s or 0),
             str(0 if seed is None else seed or 1), log, str(own_bytes_per_s or 0)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.address = self.process.stdout.readline().strip()
        if not self.address:
            raise RuntimeError("delayed_link does not say where it listens")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(SECONDS)
