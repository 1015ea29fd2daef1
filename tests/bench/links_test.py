#!/usr/bin/env python3
"""Bars for round trips over a delayed link: the time of a bare ping-pong there, but no less than
the link's own delay, and nothing without a link."""
import os
import sys
import types
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "../support")]
import links  # noqa: E402
from report import Row, one, table  # noqa: E402
import world  # noqa: E402

DELAY_MS = 2


def allows(bar, took):
    return bar.judge(types.SimpleNamespace(value=lambda _: took))[1]


class Links(unittest.TestCase):
    def test_ping_pong_takes_at_least_link_delay(self):
        raw = links.raw_links((DELAY_MS,))
        self.assertGreaterEqual(raw[links.link_of(DELAY_MS)]["p50"], DELAY_MS)

    def test_bar_allows_ping_pong_time_for_each_round_trip(self):
        for took, each in ((2.5, 2.5), (1.5, DELAY_MS)):
            bar = links.bounded(5, 4, DELAY_MS, {links.link_of(DELAY_MS): {"p50": took}})
            self.assertTrue(allows(bar, 5 + 4 * each), took)
            self.assertFalse(allows(bar, 5.01 + 4 * each), took)

    def test_row_reports_nominal_bar_beside_bar(self):
        bar = links.bounded(5, 4, DELAY_MS, {links.link_of(DELAY_MS): {"p50": 2.5}})
        for took, met, nominal_met in ((13, True, True), (14, True, False), (16, False, False)):
            row = Row("a row", "ms", {"gpurun": one(took)}).judge(bar).as_json()
            self.assertEqual((row["met"], row["nominal_met"]), (met, nominal_met))
            self.assertEqual((row["bar"], row["nominal_bar"]), ("<= 15 ms", "<= 13 ms"))
            lines = "\n".join(table({"stand": "", "groups": {"g": {
                "about": "", "stand": "", "rounds": 1, "raw": {}, "rows": [row]}}}))
            self.assertIn(f"<= 15 ms (nominal <= 13 ms: {'met' if nominal_met else 'not'})", lines)

    def test_bar_without_link_has_no_nominal_bar(self):
        bar = links.bounded(5, 4, 0, {})
        self.assertIsNone(bar.nominal)
        self.assertTrue(allows(bar, 5))
        self.assertFalse(allows(bar, 5.01))


if __name__ == "__main__":
    world.main()
