#!/usr/bin/env python3
"""programs.py counts only cases with a verdict as right, skips a program with the reason, keeps the
rows of other programs, and changes a page between its marks alone.

No device and no network take part: the client and gpurun are scripts, and the environment is there
already."""
import json
import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]
import page  # noqa: E402
import programs  # noqa: E402

ROW = {"packages": ["one==1"], "cases": {
    "first": {"native": {"verdict": "right", "seconds": 1.0}, "forwarded": {"verdict": "right", "seconds": 2.0}},
    "second": {"native": {"verdict": "right", "seconds": 0.5}, "forwarded": {"verdict": "no verdict", "seconds": None}}}}


class Programs(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = holder.name

    def run_programs(self, *words):
        return subprocess.run([sys.executable, "-B", os.path.join(HERE, "programs.py"), *words],
                              capture_output=True, text=True, timeout=60, check=False)

    def test_case_without_verdict_is_not_right(self):
        said = programs.judged("first: right (0.5 s, 1.2 s of processors)\n"
                               "second: AssertionError: 1 is 2 (1.0 s, 0.1 s of processors)\n",
                               ["first", "second", "third"])
        self.assertEqual({"verdict": "right", "seconds": 0.5, "processor_seconds": 1.2}, said["first"])
        self.assertEqual("AssertionError: 1 is 2", said["second"]["verdict"])
        self.assertEqual("no verdict", said["third"]["verdict"])
        self.assertFalse(programs.right(ROW))
        ROW["cases"]["second"]["forwarded"] = ROW["cases"]["second"]["native"]
        self.assertTrue(programs.right(ROW))
        self.assertFalse(programs.right(dict(ROW, failures={"native": "WRONG: it did not end"})))

    def test_each_client_names_its_cases(self):
        for name in programs.catalog():
            self.assertGreaterEqual(len(programs.cases_of(name)), 3, name)

    def test_frameworks_run_without_settings(self):
        """docs/compatibility.md promises that they need none."""
        for name in ("jax", "triton", "torch_compile"):
            self.assertNotIn("environment", programs.catalog()[name], name)
        # The wheel does not find its own cuSOLVER, with a GPU or without.
        self.assertEqual(["LD_LIBRARY_PATH"], list(programs.catalog()["tensorflow"]["environment"]))

    def test_trips_of_all_processes_count(self):
        os.makedirs(os.path.join(self.folder, "exercised"))

        def process(trips, name, fences, received, entries=7):
            return json.dumps({"blocking_round_trips": trips, "functions": [
                {"name": name, "entries": entries, "calls": 7, "fences": fences, "received_bytes": received}]}) + "\n"
        with open(os.path.join(self.folder, "exercised/x.json"), "w", encoding="utf-8") as stream:
            stream.write(process(300, "cuMemcpyDtoH_v2", 5, 100) + process(4, "cuMemAllocAsync", 3, 0))
        said = programs.trips(self.folder, "x")
        self.assertEqual({"all": 304, "read": 7, "most": [["cuMemcpyDtoH_v2", 5], ["cuMemAllocAsync", 3]]}, said)
        # The device itself moves bytes to memory that it reaches. No thread waits for a host function.
        with open(os.path.join(self.folder, "exercised/x.json"), "a", encoding="utf-8") as stream:
            stream.write(process(0, "cuMemcpyDtoHAsync_v2", 0, 0, 9) + process(0, "cuLaunchHostFunc", 50, 0))
            stream.write(process(0, "cuMemcpyAsync", 1, 30, 2))
        more = programs.trips(self.folder, "x")
        self.assertEqual((304, 7 + 9 + 7), (more["all"], more["read"]))
        self.assertNotIn("cuLaunchHostFunc", dict(more["most"]))
        self.assertFalse(page.few_trips(said))
        self.assertIn("cuMemAllocAsync 3", page.trips_of({"trips": said}))
        self.assertTrue(page.few_trips(dict(said, all=114)))
        self.assertIsNone(programs.trips(self.folder, "unknown"))

    def test_page_changes_between_its_marks_alone(self):
        path = os.path.join(self.folder, "page.md")
        with open(path, "w", encoding="utf-8") as stream:
            stream.write(f"before\n{page.BEGIN}\nold\n{page.END}\nbehind\n")
        page.write(path, {"one": ROW})
        with open(path, encoding="utf-8") as stream:
            text = stream.read()
        self.assertTrue(text.startswith(f"before\n{page.BEGIN}\n") and text.endswith(f"{page.END}\nbehind\n"), text)
        self.assertIn("| one (one==1) |", text)
        self.assertNotIn("old", text)
        page.write(path, {"one": dict(ROW, processor_seconds={"native": 8.2, "forwarded": 9.7})})
        with open(path, encoding="utf-8") as stream:
            self.assertRegex(stream.read(), r"\| one .* \| 2 \(8\) \| \d+ \(10\) \|")
        with open(path, "w", encoding="utf-8") as stream:
            stream.write("no marks\n")
        with self.assertRaises(SystemExit):
            page.write(path, {"one": ROW})

    def test_rows_of_other_programs_stay(self):
        path = os.path.join(self.folder, "rows.json")
        runs = [page.Rows(path), page.Rows(path)]  # Beside each other.
        runs[0].take("one", ROW)
        runs[1].take("two", ROW)
        self.assertEqual(["one", "two"], sorted(page.Rows(path).all()))
        self.assertEqual(["one", "two"], sorted(runs[1].all()))

    def test_row_names_the_package_of_the_program(self):
        row = dict(ROW, packages=["cudf-cu13==1", "cuml-cu13==2"])
        self.assertIn("| cuml (cuml-cu13==2) |", "\n".join(page.table({"cuml": row})))
        self.assertIn("| other (cudf-cu13==1) |", "\n".join(page.table({"other": row})))

    def test_published_rows_stay_and_yield_to_new_ones(self):
        published = os.path.join(self.folder, "published.json")
        with open(published, "w", encoding="utf-8") as stream:
            json.dump({"one": {"packages": ["old==1"]}, "three": ROW}, stream)
        path = os.path.join(self.folder, "rows.json")
        page.Rows(path, published).take("one", ROW)
        rows = page.Rows(path, published).all()
        self.assertEqual(["one", "three"], sorted(rows))
        self.assertEqual(ROW["packages"], rows["one"]["packages"])

    def test_cold_run_finds_no_cache_of_the_last_one(self):
        for _ in range(2):
            with programs.home_of(True) as words:
                places = dict(word.split("=") for word in words[1::2])
                self.assertEqual(["HOME", "TMPDIR", "XDG_CACHE_HOME"], sorted(places))
                for place in places.values():
                    self.assertNotIn("kernel", os.listdir(place))
                    with open(os.path.join(place, "kernel"), "w", encoding="utf-8"):
                        pass
            self.assertFalse(os.path.exists(places["HOME"]))
        with programs.home_of(False) as words:
            self.assertEqual([], words)
        for name, entry in programs.catalog().items():  # Caches are in the home, which is empty then.
            places = {**entry.get("environment", {}), **entry.get("native", {})}
            self.assertFalse([key for key in places if "CACHE" in key], name)

    def test_processor_seconds_count_children(self):
        before = programs.processor_seconds()
        subprocess.run([sys.executable, "-c", "import time\nwhile time.process_time() < 0.2: pass"], check=True)
        self.assertGreaterEqual(programs.processor_seconds() - before, 0.15)

    def test_what_a_program_lacks_is_a_skip_with_the_reason(self):
        with self.assertRaisesRegex(programs.Missing, "no-such-program is not installed"):
            programs.prepare({"debian": ["no-such-program"]}, self.folder, self.folder)
        with self.assertRaisesRegex(programs.Missing, "/missing.so is missing"):
            programs.prepare({"needs": ["{folder}/missing.so"]}, self.folder, self.folder)

    def test_wrong_usage_names_the_fault(self):
        said = self.run_programs("no-such-program")
        self.assertEqual(2, said.returncode)
        self.assertIn("no program no-such-program", said.stderr)
        said = self.run_programs("--build", self.folder, "drjit")
        self.assertEqual(2, said.returncode)
        self.assertIn("bin/gpurun: build it first", said.stderr)


if __name__ == "__main__":
    unittest.main()
