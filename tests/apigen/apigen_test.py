#!/usr/bin/env python3
"""Generator of the wire code: its golden output and its refusals. It decides what travels over the
wire.

Golden output of six rows of different kinds is in this folder (apigen_test.py --update rewrites it;
read the difference). Every rule of check.py must refuse a row that breaks it. Opcodes in git may
only be appended to. With a CUDA toolkit, the link stub must have exactly our symbols.
"""

import copy
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
TABLES = os.path.join(ROOT, "driver_abi")
GOLDEN = os.path.join(HERE, "golden_rows.txt")
sys.path.insert(0, os.path.join(TABLES, "apigen"))
import check  # noqa: E402  (the path must be set first)
import cuda_types  # noqa: E402
import emit_devices  # noqa: E402
import emit_entries  # noqa: E402
import emit_rows  # noqa: E402
import table  # noqa: E402
import toml_file  # noqa: E402

TYPES = cuda_types.CudaTypes(os.path.join(TABLES, "cuda_types.toml"))
SOURCE = toml_file.load(os.path.join(TABLES, "cuda_driver.toml"))
LOCK = check.read_lock(os.path.join(TABLES, "opcodes.lock"))
GRAPHICS = re.compile(r"cu(GL|EGL|VDPAU)[A-Z]|cuGraphics(GL|EGL|VDPAU)|.*Egl|.*EGL")
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
GOLDEN_ROWS = ("cuArrayCreate", "cuEventRecord_ptsz", "cuGraphAddEmptyNode", "cuGraphGetNodes",
               "cuIpcOpenMemHandle_v2", "cuTensorMapEncodeTiled")


def load(source):
    """The rows of a table that is given as dictionaries, as table.load reads them from a file."""
    rows = {symbol: table.Row(symbol, d) for symbol, d in source.items()}
    for row in rows.values():
        if not row.alias:
            row.resolve(TYPES)
    for row in rows.values():
        if row.alias:
            row.resolve_alias(rows)
    return list(rows.values())


def golden(rows):
    lines = []
    for row in rows:
        if row.symbol not in GOLDEN_ROWS:
            continue
        lines += ["# " + row.symbol]
        lines += [emit_rows.parameter_data(TYPES, row, p) for p in row.parameters]
        lines += [emit_rows.row_data(TYPES, row)]
        lines += emit_entries.client_body(row)
        lines += [emit_devices.arguments_of(row), ""]
    return "\n".join(lines)


class GoldenOutput(unittest.TestCase):
    def test_generated_rows_match_golden_output(self):
        with open(GOLDEN, encoding="utf-8") as stream:
            self.assertEqual(golden(load(SOURCE)).splitlines(), stream.read().splitlines())


class TableCheck(unittest.TestCase):
    """Each test puts one fault into the real table, and expects the build to name it."""

    def faults(self, symbol, **changes):
        source = copy.deepcopy(SOURCE)
        for key, value in changes.items():
            if value is None:
                del source[symbol][key]
            else:
                source[symbol][key] = value
        try:
            return "\n".join(check.check(TYPES, load(source), LOCK))
        except (table.RowError, cuda_types.TypeError_) as error:
            return str(error)

    def parameters(self, symbol, old, new):
        changed = [p.replace(old, new) for p in SOURCE[symbol]["parameters"]]
        self.assertNotEqual(changed, SOURCE[symbol]["parameters"])
        return self.faults(symbol, parameters=changed)

    def test_check_accepts_real_table(self):
        self.assertEqual(check.check(TYPES, load(SOURCE), LOCK), [])

    def test_check_rejects_async_row_with_unknowable_output_type(self):
        self.assertIn("cannot know the output type", self.faults("cuGraphNodeGetType",
                                                                 completion="async"))

    def test_check_rejects_async_row_with_server_made_handle(self):
        self.assertIn("cannot know the output pHandle_out",
                      self.faults("cuGraphConditionalHandleCreate", completion="async"))

    def test_check_rejects_generated_row_with_opaque_parameter(self):
        self.assertIn("generated row cannot pack",
                      self.faults("cuLaunchKernel", implementation=None))

    def test_check_rejects_handle_structure_declared_flat(self):
        self.assertIn("holds pointers or handles",
                      self.parameters("cuGraphAddKernelNode_v2", "nodeParams | opaque",
                                      "nodeParams"))

    def test_check_rejects_generated_local_row(self):
        self.assertIn("hand-written", self.faults("cuGraphGetNodes", completion="local"))

    def test_check_rejects_remembered_row_without_generated_fence(self):
        for symbol in ("cuCtxSetCacheConfig", "cuEventQuery", "cuCtxGetFlags"):
            self.assertIn("no generated fence", self.faults(symbol, remembered=True))

    def test_check_rejects_remembered_row_with_list_parameter(self):
        self.assertIn("no plain input", self.faults("cuGraphGetNodes", remembered=True))

    def test_check_rejects_refused_row_without_reason(self):
        self.assertIn("reason", self.faults("cuCheckpointProcessLock", reason=None))

    def test_check_rejects_unknown_completion(self):
        self.assertIn("is none of", self.faults("cuCheckpointProcessLock", completion="perhaps"))

    def test_check_rejects_non_integer_count(self):
        self.assertIn("no integer", self.parameters("cuMemPoolSetAccess", "count=count",
                                                    "count=pool"))

    def test_check_rejects_count_of_unknown_parameter(self):
        self.assertIn("no parameter", self.parameters("cuMemPoolSetAccess", "count=count",
                                                      "count=length"))

    def test_check_rejects_pointer_without_direction(self):
        self.assertIn("in, out or inout", self.parameters("cuGraphNodeGetType", " | out", ""))

    def test_check_rejects_output_through_const_pointer(self):
        self.assertIn("points to const", self.parameters("cuArrayCreate_v2", "pAllocateArray",
                                                         "pAllocateArray | out"))

    def test_check_rejects_unknown_note(self):
        self.assertIn("unknown note", self.parameters("cuGraphNodeGetType", "| out", "| outward"))

    def test_check_rejects_unknown_type(self):
        self.assertIn("unknown type", self.parameters("cuGraphNodeGetType", "CUgraphNodeType",
                                                      "CUgraphNodeSort"))

    def test_check_rejects_stream_that_is_not_a_stream_handle(self):
        self.assertIn("no such handle", self.faults("cuGraphLaunch", stream="hGraph"))

    def test_check_rejects_context_of_parameter_without_context(self):
        self.assertIn("brings no context", self.faults("cuStreamQuery", context_of="stream"))
        self.assertIn("brings no context", self.faults("cuMemsetD8Async", context_of="N"))
        self.assertIn("brings no context", self.faults("cuCheckpointProcessLock", context_of="pid"))

    def test_check_rejects_alias_with_own_settings(self):
        self.assertIn("alias cannot say", self.faults("cuMemcpy_ptds", completion="async"))

    def test_check_rejects_alias_of_alias(self):
        self.assertIn("no row of its own", self.faults("cuStreamDestroy", alias="cuMemcpy_ptds"))

    def test_check_rejects_duplicate_opcode(self):
        self.assertIn("had opcode", self.faults("cuArrayDestroy",
                                                opcode=SOURCE["cuArrayGetPlane"]["opcode"]))

    def test_check_rejects_swapped_opcodes(self):
        source = copy.deepcopy(SOURCE)
        first, second = source["cuArrayDestroy"], source["cuArrayGetPlane"]
        first["opcode"], second["opcode"] = second["opcode"], first["opcode"]
        self.assertIn("cuArrayDestroy: had opcode",
                      "\n".join(check.check(TYPES, load(source), LOCK)))

    def test_check_rejects_removed_row(self):
        source = {s: d for s, d in SOURCE.items() if s != "cuWaitExternalSemaphoresAsync_ptsz"}
        self.assertIn("cuWaitExternalSemaphoresAsync_ptsz: had opcode",
                      "\n".join(check.check(TYPES, load(source), LOCK)))

    def test_check_rejects_duplicate_key(self):
        self.assertIn("has the key of", self.faults("cuArrayDestroy",
                                                    key=SOURCE["cuArrayGetPlane"]["key"]))

    def test_build_fails_and_names_fault(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("cuda_types.toml", "opcodes.lock", "cuda_driver.toml"):
                with open(os.path.join(TABLES, name), encoding="utf-8") as stream:
                    text = stream.read()
                with open(os.path.join(folder, name), "w", encoding="utf-8") as stream:
                    stream.write(text.replace('reason = "Windows only"\n', ""))
            run = subprocess.run([sys.executable, "-B", os.path.join(TABLES, "apigen"),
                                  "--tables", folder, "--out", os.path.join(folder, "out")],
                                 capture_output=True, text=True, check=False, timeout=60)
        self.assertNotEqual(run.returncode, 0)
        self.assertIn("cuDeviceGetLuid: a reason belongs to refused rows", run.stderr)


class GeneratedIncludes(unittest.TestCase):
    def test_generated_files_include_only_driver_abi_headers(self):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([sys.executable, "-B", os.path.join(TABLES, "apigen"), "--tables", TABLES,
                            "--out", folder], check=True, timeout=60)
            included = {}
            for path in pathlib.Path(folder).rglob("*.*"):
                name = str(path.relative_to(folder))
                included[name] = INCLUDE.findall(path.read_text(encoding="utf-8"))
        self.assertIn("driver_abi/cuda_abi.h", included["client/interpose/custom.h"])
        self.assertIn("client/interpose/entry_points.inc", included)
        for name, headers in included.items():
            foreign = [header for header in headers if not header.startswith("driver_abi/")]
            self.assertEqual(foreign, [], name)


class Table(unittest.TestCase):
    def test_hash_changes_with_row(self):
        plain = {row.symbol: row.hash(TYPES) for row in load(SOURCE)}
        self.assertEqual(len(set(plain.values())), len(plain))
        source = copy.deepcopy(SOURCE)
        source["cuGraphAddDependencies"]["parameters"][1:3] = [
            p.replace("from", "swap").replace("to", "from").replace("swap", "to")
            for p in reversed(source["cuGraphAddDependencies"]["parameters"][1:3])]
        source["cuGraphLaunch"]["completion"] = "fence"
        changed = {row.symbol for row in load(source) if row.hash(TYPES) != plain[row.symbol]}
        self.assertIn("cuGraphLaunch", changed)
        self.assertIn("cuGraphLaunch_ptsz", changed)
        self.assertLessEqual(changed, {"cuGraphLaunch", "cuGraphLaunch_ptsz",
                                       "cuGraphAddDependencies"})

    def test_lock_holds_every_opcode(self):
        self.assertEqual(LOCK, [(d["opcode"], s) for s, d in SOURCE.items()])

    def test_git_history_of_the_lock_is_append_only(self):
        name = "driver_abi/opcodes.lock"
        run = subprocess.run(["git", "-C", ROOT, "log", "-p", "--format=", "--", name],
                             capture_output=True, text=True, check=False, timeout=60)
        if run.returncode != 0 or not run.stdout:
            self.skipTest("no git history here")
        removed = [line for line in run.stdout.splitlines()
                   if line.startswith("-") and line[1:2].isdigit()]
        self.assertEqual(removed, [])

    # The stub lacks the functions of graphics interoperation, which the driver itself exports.
    def test_table_symbols_match_link_stub(self):
        toolkit = int(os.environ.get("GPURUN_CUDA_H_VERSION") or 0)
        stub = os.environ.get("GPURUN_CUDA_STUB", "")
        if os.environ.get("GPURUN_CUDA_H_MATCHES") != "TRUE" or not os.path.isfile(stub):
            self.skipTest("no CUDA 13 toolkit with a link stub on this machine")
        run = subprocess.run(["nm", "-D", "--defined-only", stub], capture_output=True, text=True,
                             check=True, timeout=60)
        names = {line.split()[2].split("@")[0] for line in run.stdout.splitlines()}
        names = {n for n in names if n.startswith("cu")}
        if toolkit > int(TYPES.constants["CUDA_VERSION"]):
            # The stub also has functions that are newer than the table.
            self.assertLessEqual({s for s in SOURCE if not GRAPHICS.match(s)}, names)
        else:
            self.assertEqual(names, {row.symbol for row in load(SOURCE) if row.version <= toolkit and
                                     not GRAPHICS.match(row.symbol)})

    def test_newest_row_matches_cuda_version(self):
        newest = max(row.version for row in load(SOURCE))
        self.assertEqual(newest, int(TYPES.constants["CUDA_VERSION"]))


if __name__ == "__main__":
    if "--update" in sys.argv:
        with open(GOLDEN, "w", encoding="utf-8") as out:
            out.write(golden(load(SOURCE)))
    else:
        unittest.main(verbosity=2)
