#!/usr/bin/env python3
"""Box records: a copy of two or three dimensions is one call on the wire, for any number of lines
and any gaps, on the device or in the program's memory.

Its word: the program driver_boxes.
"""
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../support"))
import world  # noqa: E402

PROGRAM = sys.argv.pop(1)
COPIES = 5 * 3 * 2  # Ways, sides with gaps, waited for and not: of a thousand lines each.
OTHERS = 60  # Calls to set up, to fill and read the copies, and to end.


class BoxRecords(unittest.TestCase):
    def test_box_copy_is_one_call(self):
        with world.Gpurund() as server:
            done = world.measured(server, [PROGRAM, "lines"])
        self.assertEqual((done.status, done.stdout), (0, "PASSED\n"), done.stderr)
        (statistics,) = done.statistics
        self.assertGreater(statistics["calls"], COPIES)
        self.assertLess(statistics["calls"], COPIES + OTHERS)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]], verbosity=2)
