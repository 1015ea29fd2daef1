"""Links whose bytes take their time: they are late, slow, or come in odd pieces."""
import os
import subprocess

from .arguments import ARGS, SECONDS

PROGRAM = os.path.join(ARGS.build, "tests/delayed_link")


class DelayedLink:
    """A TCP relay that keeps each byte half of `round_trip_s` in either direction, and holds up what is
    said first on a connection as if it had had its handshake on the way: connect() to it costs nothing.
    `bytes_per_s`: what all connections together may send in one, `own_bytes_per_s`: what each of them
    may. `seed`: pieces of any size are kept up to three times as long, each connection's for itself, so
    that what one brings overtakes what another does. `log`: a file that holds, once the link has ended,
    what passed (delayed_link.cc)."""

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
