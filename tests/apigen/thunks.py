#!/usr/bin/env python3
"""Writes thunks.inc: THUNK(opcode, symbol) for every row that is served from its description.

usage: thunks.py DRIVER_ABI_FOLDER OUTPUT [CUDA_INCLUDE]
It writes only names. tests/parity/thunks.cc takes the types from cuda.h. Rows that are too new
for that cuda.h become OUR_THUNK, and tests/parity/our_thunks.cc takes their types from our
header.
"""

import os
import re
import sys

FOLDER, OUTPUT = sys.argv[1:3]
INCLUDE = sys.argv[3] if len(sys.argv) > 3 else ""
sys.path.insert(0, os.path.join(FOLDER, "apigen"))
import cuda_types  # noqa: E402  (the path must be set first)
import table  # noqa: E402

TYPES = cuda_types.CudaTypes(os.path.join(FOLDER, "cuda_types.toml"))
KNOWN = set()
if INCLUDE:
    for name in ("cuda.h", "cudaProfiler.h"):
        with open(os.path.join(INCLUDE, name), encoding="utf-8") as header:
            KNOWN |= set(re.findall(r"\w+", header.read()))
with open(OUTPUT, "w", encoding="utf-8") as stream:
    for row in table.load(os.path.join(FOLDER, "cuda_driver.toml"), TYPES):
        if row.completion != "refused" and row.target is row:
            macro = "THUNK" if row.symbol in KNOWN else "OUR_THUNK"
            stream.write("%s(%d, %s)\n" % (macro, row.opcode, row.symbol))
