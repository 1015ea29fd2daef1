#!/usr/bin/env python3
"""Raw streams that copies are judged by: they have as many connections as copies in the same
direction had."""
import os
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "../support")]
from bars import of_stream  # noqa: E402
from calls import Connections  # noqa: E402
from report import Row, one  # noqa: E402
import world  # noqa: E402

INTO, OUT = "copy in 64 MiB, pinned", "copy out 64 MiB, pinned"
RAW = {f"raw stream x{lanes}{kind}": one(lanes) for lanes in (1, 2, 4, 8) for kind in ("", ", Reno")}


class Asked:
    """A machine that only measures raw streams."""

    placements = ("free",)

    def __init__(self):
        self.words = []

    def raw(self, _placement, *words):
        self.words.append(words)
        return {}


def counted(into, into_most, out, out_most):
    return {"bulk_connections": into, "bulk_connections_most": into_most,
            "bulk_connections_out": out, "bulk_connections_out_most": out_most}


def sessions():
    found = Connections()
    found.add("gpurun", counted(1, 2, 4, 8))
    found.add("gpurun", counted(1, 1, 1, 1))
    found.add("gpurun across", counted(2, 2, 1, 4))
    return found


class RawStreams(unittest.TestCase):
    def test_each_direction_has_its_own_stream_counts(self):
        self.assertEqual(sessions().lanes(INTO), (1, 2))
        self.assertEqual(sessions().lanes(OUT), (1, 4, 8))
        self.assertEqual(Connections().lanes(OUT), (1,))

    def test_fastest_stream_sets_bar(self):
        for name, text in ((INTO, "1.00 of 0.95 of the stream x2"), (OUT, "0.25 of 0.95 of the stream x8")):
            row = Row(name, "GB/s", {"gpurun": one(2)}, RAW, sessions().lanes(name)).judge(of_stream(0.95))
            self.assertEqual((row.text, row.met), (text, name == INTO))

    def test_each_round_measures_all_stream_counts(self):
        machine, found = Asked(), sessions()
        found.raw(machine, 2)
        self.assertEqual(machine.words, [("streams", "1", "2", "4", "8")] * 2)

    def test_connection_counts_become_rows(self):
        rows = {row.name: row.columns for row in sessions().rows()}
        self.assertEqual(rows, {
            "connections of copies in, in the end": {"gpurun": one(1), "gpurun across": one(2)},
            "connections of copies in, at most": {"gpurun": {"p50": 1.5, "p99": 2}, "gpurun across": one(2)},
            "connections of copies out, in the end": {"gpurun": {"p50": 2.5, "p99": 4}, "gpurun across": one(1)},
            "connections of copies out, at most": {"gpurun": {"p50": 4.5, "p99": 8}, "gpurun across": one(4)}})


if __name__ == "__main__":
    world.main()
