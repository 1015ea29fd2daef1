"""Recorded log: the frames that a program's client sends on its log connection, as a relay between
the two sees them."""
import struct

from machine import forwarded_environment, run
from world.relay import Relay

HEADER, MAGIC = "<IHBB16x", 0x7267  # FrameHeader, protocol/log/frame.h.
HANDSHAKE_BYTES_MAX = 1 << 16
RECORDS, KINDS = 1, 12


def frames(heard, start):
    """Returns (kind, payload's start, end) of each frame from `start` on. Returns None when no
    frame begins there."""
    found = []
    while start + struct.calcsize(HEADER) <= len(heard):
        size, magic, kind, flags = struct.unpack_from(HEADER, heard, start)
        if magic != MAGIC or not 1 <= kind <= KINDS or flags != 0:
            return None
        begin = start + struct.calcsize(HEADER)
        found.append((kind, begin, begin + size))
        start = begin + size
    return found


def log_of(connections):
    """Returns the bytes after the handshake of the connection that carried most bytes of records."""
    best_bytes, best = 0, b""
    for heard in connections:
        for start in range(min(len(heard), HANDSHAKE_BYTES_MAX)):
            found = frames(heard, start)
            if found:
                carried = sum(min(end, len(heard)) - begin for kind, begin, end in found if kind == RECORDS)
                if carried > best_bytes:
                    best_bytes, best = carried, heard[start:]
                break
    return best


def record(machine, server, command, path, statuses=(0,)):
    """Runs `command` through gpurun in plaintext and writes its log to `path`, without packing of
    records. The last frame may be cut."""
    with Relay(server.port()) as relay:
        said = run(machine.gpurun(server, command, relay.address),
                   forwarded_environment(server, GPURUN_PACKING="off"), statuses)
    with open(path, "wb") as file:
        file.write(log_of(relay.heard))
    return said
