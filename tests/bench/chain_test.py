#!/usr/bin/env python3
"""Counting of round trips and of the hand-over to a worker, from the log of a link."""
import unittest

import chain


def opened(connection, came):
    return {"what": "open", "connection": connection, "came": came, "went": came, "bytes": 0}


def said(what, connection, came, went):
    return {"what": what, "connection": connection, "came": came, "went": went, "bytes": 8}


class RoundTrips(unittest.TestCase):
    def test_independent_messages_share_one_round_trip(self):
        events = [opened(1, 0), opened(2, 0), said("up", 1, 20, 30), said("up", 2, 20, 30),
                  said("down", 1, 31, 41), said("down", 2, 32, 42)]
        self.assertEqual(chain.round_trips(events, {1, 2}), 2)  # The connects, and the answers.

    def test_each_reply_to_reply_adds_round_trip(self):
        events = [opened(1, 0), said("up", 1, 20, 30), said("down", 1, 30, 40),
                  said("up", 1, 40, 50), said("down", 1, 50, 60)]
        self.assertEqual(chain.round_trips(events, {1}), 3)
        self.assertEqual(chain.round_trips(events, {1}, until=45), 2)


class HandOver(unittest.TestCase):
    def test_hand_over_uses_connection_answered_first(self):
        events = [opened(1, 0), opened(2, 0), said("up", 1, 20, 30), said("up", 2, 20, 31),
                  said("down", 2, 40, 50), said("down", 1, 45, 55)]
        self.assertEqual(chain.hand_over_ns(events, {1, 2}), 9)

    def test_hand_over_ignores_late_connection(self):
        events = [opened(1, 0), opened(2, 0), said("up", 1, 20, 30), said("down", 1, 34, 44),
                  said("up", 2, 38, 48), said("down", 2, 52, 62)]
        self.assertEqual(chain.hand_over_ns(events, {1, 2}), 4)


if __name__ == "__main__":
    unittest.main(verbosity=2)
