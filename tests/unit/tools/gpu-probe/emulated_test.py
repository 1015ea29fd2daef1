#!/usr/bin/env python3
"""Makes every query of gpu-probe on the emulated device (arguments: probe, driver).

What the emulated device does not implement must return an error code. A wrong call that crashes it would
crash a worker. Its codes are those of the table, with each call in a separate process. The tests
`wrong_calls` make many calls in one process.
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

PROBE, DRIVER = sys.argv[1:3]
NOT_SUPPORTED = "801 CUDA_ERROR_NOT_SUPPORTED"
AS_EXPECTED_MIN = 700


class EmulatedProbe(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "probe.json")
            subprocess.run([PROBE, "--libcuda", DRIVER, "--json", path], check=True, timeout=280,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            with open(path, encoding="utf-8") as file:
                cls.questions = {q["name"]: q for q in json.load(file)["questions"]}
        cls.calls = [fact for name, fact in cls.questions["wrong_calls"]["facts"].items()
                     if name.startswith("call.")]

    def test_probe_answers_all_questions_except_beyond_one_process(self):
        answered = {name for name, q in self.questions.items() if q["status"] == "answered"}
        self.assertEqual(set(self.questions) - answered, {"beyond_one_process"})

    def test_probe_queries_export_tables_and_kernel_parameters(self):
        tables = self.questions["export_tables"]["facts"]
        for name in ("slot_4", *(f"slots_51_and_39.{stream}" for stream in
                                 ("default", "legacy", "per_thread", "created"))):
            self.assertEqual((tables[f"T2131.{name}"]["result"], tables[f"T2131.{name}"]["same_id"]),
                             ("0 CUDA_SUCCESS", True), name)
        layouts = self.questions["kernel_parameters"]["facts"]
        for name in ("enumerated_kernel.with_five", "function_of_the_kernel.with_five"):
            self.assertEqual(layouts[name], layouts["kernel.with_five"])
        self.assertEqual(layouts["kernel.empty"]["parameters"], [])

    def test_probe_measures_host_memory_coherency(self):
        memory = self.questions["host_memory"]["facts"]
        if memory.get("shadow") == "the address could not be mapped":
            self.skipTest("the shadow's address is not free: a sanitizer has its own there")
        for name in ("coherency.64KiB", "coherency.4096KiB"):
            self.assertEqual(memory[name].pop("times_incremented"), 6)
            self.assertTrue(all(cost > 0 for cost in memory[name].values()), memory[name])
        self.assertEqual(memory["host_write_into_the_shadow"]["seen_by_the_running_kernel"],
                         "0 CUDA_SUCCESS")

    def test_call_costs_are_positive_times(self):
        costs = self.questions["call_costs"]["facts"]
        for call in ("cuGraphLaunch", "cuModuleGetFunction", "cuMemsetD8Async", "cuMemHostAlloc"):
            self.assertTrue(any(call in name for name in costs), call)
        for name, cost in costs.items():
            self.assertGreater(cost["us"], 0, name)

    def test_no_wrong_call_crashes_or_hangs(self):
        bad = [(c["function"], c["how"], c["got"]) for c in self.calls
               if "signal" in c["got"] or "time" in c["got"]]
        self.assertEqual(bad, [])

    def test_error_codes_match_table_for_implemented_calls(self):
        differing = [(c["function"], c["how"], c["got"], c["expected"]) for c in self.calls
                     if c["verdict"] == "differs" and not
                     (c["lacking"] and c["got"] == NOT_SUPPORTED) and not
                     (c["lacking"].startswith("later: ") and c["got"] == "0 CUDA_SUCCESS")]
        self.assertEqual(differing, [])
        agreeing = [c for c in self.calls if c["verdict"] == "as expected"]
        self.assertGreaterEqual(len(agreeing), AS_EXPECTED_MIN)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
