"""apigen: writes everything that is generated from driver_abi's tables into a build folder.

usage: python3 driver_abi/apigen --tables driver_abi --out build/generated [--emulated LIST]
Python 3.9 or newer, standard library only (tomllib from 3.11, else tomli).
"""

import argparse
import os
import sys

import check
import emit_devices
import emit_entries
import emit_header
import emit_pages
import emit_rows
import table
from cuda_types import CudaTypes, TypeError_


def write(folder, name, text):
    path = os.path.join(folder, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if os.path.exists(path):  # An unchanged file must not cause a rebuild.
        with open(path, encoding="utf-8") as stream:
            if stream.read() == text:
                return
    with open(path, "w", encoding="utf-8") as stream:
        stream.write(text)


def read_names(path):
    if path is None or not os.path.exists(path):
        return frozenset()
    with open(path, encoding="utf-8") as stream:
        return frozenset(line.strip() for line in stream
                         if line.strip() and not line.startswith("#"))


def main():
    parser = argparse.ArgumentParser(prog="apigen")
    parser.add_argument("--tables", required=True, help="folder of the TOML files")
    parser.add_argument("--out", required=True, help="folder that is written")
    parser.add_argument("--exercised", help="folder of GPURUN_STATS_FILEs: which program uses what")
    parser.add_argument("--null-device", help="what the null device does by hand")
    parser.add_argument("--client-not-yet", help="custom rows that the client cannot serve yet")
    parser.add_argument("--emulated", help="what the emulated device implements, a name a line")
    arguments = parser.parse_args()
    try:
        types = CudaTypes(os.path.join(arguments.tables, "cuda_types.toml"))
        implemented = read_names(arguments.emulated)
        rows = table.load(os.path.join(arguments.tables, "cuda_driver.toml"), types, implemented,
                          read_names(arguments.client_not_yet))
        faults = check.check(types, rows,
                             check.read_lock(os.path.join(arguments.tables, "opcodes.lock")))
    except (TypeError_, table.RowError) as error:
        sys.exit("apigen: %s" % error)
    if faults:
        sys.exit("\n".join("apigen: " + fault for fault in faults))
    null_functions = read_names(arguments.null_device)
    for name, text in outputs(types, rows, implemented, null_functions).items():
        write(arguments.out, name, text)
    write(arguments.out, "docs/api-coverage.md",
          emit_pages.coverage(rows, emit_pages.read_exercised(arguments.exercised)))


def outputs(types, rows, implemented, null_functions):
    return {
        "driver_abi/cuda_abi.h": emit_header.render(types, rows),
        "driver_abi/rows.inc": emit_rows.render(types, rows),
        "driver_abi/opcodes.h": emit_rows.opcodes(rows),
        "driver_abi/exports.map": emit_entries.exports_map(rows),
        "client/interpose/custom.h": emit_entries.client_custom_header(rows),
        "client/interpose/entry_points.inc": emit_entries.client_entries(rows),
        "emulated/api.h": emit_entries.emulated_header(rows),
        "emulated/api/entry_points.inc": emit_entries.emulated_entries(rows, implemented),
        "tests/drivers/null/api.h": emit_devices.api_header(rows),
        "tests/drivers/null/entry_points.inc": emit_devices.null_entries(rows, null_functions),
        "tests/drivers/changed/entry_points.inc": emit_devices.changed_entries(rows),
    }


main()
