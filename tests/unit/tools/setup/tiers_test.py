#!/usr/bin/env python3
"""Test tiers: no test is left out for ever. Four consecutive turns run every test of a build. Skipped tests
are named and counted. Each pattern of tests/tiers.json names an existing test.

usage: tiers_test.py TIERS BUILD_FOLDER IS_WHOLE_BUILD
"""
import datetime
import importlib.machinery
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

PROGRAM, BUILD, WHOLE = sys.argv[1], sys.argv[2], sys.argv[3].upper() in ("1", "ON", "TRUE", "YES")
sys.path.insert(0, os.path.dirname(PROGRAM))
loader = importlib.machinery.SourceFileLoader("tiers", PROGRAM)
tiers = importlib.util.module_from_spec(importlib.util.spec_from_loader("tiers", loader))
loader.exec_module(tiers)
PRESETS = ("release", "asan", "tsan")


class Tiers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.tests = tiers.known_tests.tests_of(BUILD)

    def wanted(self, chosen):
        return {name for name, properties in self.tests.items()
                if not chosen.is_left_out(properties.get("LABELS", []))}

    def test_four_consecutive_days_run_every_test(self):
        for preset in PRESETS:
            chosen, ran = tiers.Tiers(preset), set()
            for day in range(4):
                moment = datetime.datetime(2026, 12, 30, 23, 59, tzinfo=datetime.timezone.utc)
                moment += datetime.timedelta(days=day)
                with mock.patch.object(tiers.datetime, "datetime", mock.Mock(wraps=datetime.datetime)) as clock:
                    clock.now.return_value = moment
                    ran |= set(chosen.choose(self.tests, tiers.today())[0])
            self.assertEqual(ran, self.wanted(chosen), preset)

    def test_emulated_tsan_turns_run_every_test(self):
        """Any of them may need the device, and then exists in these turns only."""
        chosen, ran = tiers.Tiers("tsan"), set()
        printed = subprocess.run([PROGRAM, "--emulated-under-tsan"], capture_output=True, text=True, check=True).stdout
        for turn in map(int, printed.split()):
            ran |= set(chosen.choose(self.tests, turn)[0])
        self.assertEqual(ran, self.wanted(chosen))

    def test_device_turn_runs_tests_of_its_turn(self):
        chosen = tiers.Tiers("tsan")
        for turn in range(1, tiers.TURNS + 1):
            self.assertIn(turn, chosen.turns_at(chosen.device_turn(turn)))

    def test_each_turn_names_skipped_tests(self):
        for preset in PRESETS:
            chosen = tiers.Tiers(preset)
            for turn in range(1, tiers.TURNS + 1):
                run, skipped = chosen.choose(self.tests, turn)
                named = {name for names in skipped.values() for name in names}
                self.assertEqual(set(run) | named, self.wanted(chosen))
                self.assertFalse(set(run) & named)
                self.assertNotIn(turn, skipped)

    def test_turn_zero_runs_every_test(self):
        for preset in PRESETS:
            chosen = tiers.Tiers(preset)
            run, skipped = chosen.choose(self.tests, 0)
            self.assertEqual((set(run), skipped), (self.wanted(chosen), {}))

    def test_changed_folder_runs_its_tests_out_of_turn(self):
        given = {"never": {"release": []}, "each": {"release": {"labels": [], "but": [], "tests": []}},
                 "turns": [{"turn": 3, "tests": ["^slow$"]}], "folders": {"server/": ["^slow$"]}}
        chosen, tests = tiers.Tiers("release", given), {"slow": {"LABELS": ["e2e"]}}
        self.assertEqual(chosen.choose(tests, 1), ([], {3: ["slow"]}))
        self.assertEqual(chosen.choose(tests, 1, ["client/a.cc"]), ([], {3: ["slow"]}))
        self.assertEqual(chosen.choose(tests, 1, ["server/a.cc"]), (["slow"], {}))

    def test_injected_faults_run_in_each_sanitizer_turn(self):
        for preset in ("asan", "tsan"):
            self.assertTrue(tiers.Tiers(preset).is_each("injected_faults", ["interpose"]))

    @unittest.skipUnless(WHOLE, "this build has not every test")
    def test_patterns_match_existing_tests_and_folders(self):
        given = tiers.rules()
        patterns = [pattern for preset in ("release", "quick") for key in ("tests", "but")
                    for pattern in given["each"][preset][key]]
        patterns += [pattern for row in given["turns"] for pattern in row["tests"]]
        patterns += [pattern for row in given["folders"].values() for pattern in row]
        for pattern in patterns:
            self.assertTrue(any(re.search(pattern, name) for name in self.tests), pattern)
        for folder in given["folders"]:
            self.assertTrue(os.path.isdir(os.path.join(tiers.known_tests.ROOT, folder)), folder)

    @unittest.skipUnless(WHOLE, "this build has not every test")
    def test_each_test_has_known_costs(self):
        """tools/setup/costs --measure BUILD TEST writes them. What a machine must fetch differs."""
        known = tiers.known_tests.costs()
        self.assertEqual([name for name, properties in self.tests.items()
                          if name not in known and not properties.get("FIXTURES_SETUP")], [])

    def test_is_waiting_selects_long_idle_parallel_tests(self):
        known = {"waits": (10.0, 1.0), "computes": (10.0, 9.0), "short": (0.2, 0.0)}
        self.assertTrue(tiers.is_waiting("waits", {}, known))
        self.assertFalse(tiers.is_waiting("waits", {"RUN_SERIAL": True}, known))
        for name in ("computes", "short", "unknown"):
            self.assertFalse(tiers.is_waiting(name, {}, known))

    def test_program_writes_regexes_that_ctest_accepts(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([PROGRAM, "--turn", "2", "--regex", folder, "release", BUILD], timeout=60,
                                  capture_output=True, text=True, check=True)
            run, skipped = map(int, done.stdout.split())
            listed = 0
            for kind in ("compute", "waiting"):
                with open(os.path.join(folder, kind + ".regex"), encoding="utf-8") as file:
                    regex = file.read()
                if regex:
                    self.assertLess(len(regex), 60000)  # What ctest's expressions may have.
                    names = subprocess.run(["ctest", "--test-dir", BUILD, "-N", "-R", regex, "-FA", ".*"],
                                           capture_output=True, text=True, timeout=60, check=True).stdout
                    listed += int(re.search(r"Total Tests: (\d+)", names).group(1))
        self.assertEqual(listed, run)
        self.assertEqual(run + skipped, len(self.tests))
        named = re.findall(r"^SKIPPED: release: (\d+) tests of turn [134]: (.*)$", done.stderr, re.M)
        self.assertEqual(sum(len(names.split()) for _, names in named), skipped)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
