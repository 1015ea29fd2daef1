#!/usr/bin/env python3
"""Writes thunks.inc: THUNK(opcode, symbol) for every row that is served from its description.

usage: thunks.py DRIVER_ABI_FOLDER OUTPUT
Only names: tests/every_row/thunks.cc takes the types from cuda.h.
"""

import os
import sys

FOLDER, OUTPUT = sys.argv[1:]
sys.path.insert(0, os.path.join(FOLDER, "apigen"))
import cuda_types  # noqa: E402  (the path must be set first)
import table  # noqa: E402

TYPES = cuda_types.CudaTypes(os.path.join(FOLDER, "cuda_types.toml"))
with open(OUTPUT, "w", encoding="utf-8") as stream:
    for row in table.load(os.path.join(FOLDER, "cuda_driver.toml"), TYPES):
        if row.completion != "refused" and row.target is row:
            stream.write("THUNK(%d, %s)\n" % (row.opcode, row.symbol))
