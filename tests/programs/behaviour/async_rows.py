#!/usr/bin/env python3
"""Async rows: a call must not succeed and then fail later, at an unrelated call. The test covers
every row of the table that is posted (completion async), aliases too. A row that the device does
not implement returns NOT_SUPPORTED at the call, natively and through gpurun. After a row that
succeeds, no wait returns NOT_SUPPORTED. Each call gets zeros for arguments.
"""
import ctypes
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
sys.path.insert(0, os.path.join(ROOT, "driver_abi/apigen"))
import cuda_types  # noqa: E402  (the path must be set first)
import table  # noqa: E402

NOT_SUPPORTED = 801


def names(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as stream:
        return frozenset(line.strip() for line in stream if line.strip() and not line.startswith("#"))


def main():
    types = cuda_types.CudaTypes(os.path.join(ROOT, "driver_abi/cuda_types.toml"))
    rows = table.load(os.path.join(ROOT, "driver_abi/cuda_driver.toml"), types,
                      names("emulated/implemented.list"))
    cuda = ctypes.CDLL("libcuda.so.1")
    context, graph = ctypes.c_void_p(), ctypes.c_void_p()
    if cuda.cuInit(0) or cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0):
        return "no device"
    wrong = refused = 0
    for row in rows:
        if row.completion != "async":
            continue
        cuda.cuCtxSetCurrent(context)
        got = getattr(cuda, row.symbol)(*[ctypes.c_uint64(0) for _ in range(12)])
        cuda.cuCtxSetCurrent(context)
        if got == 0 and row.base == "cuStreamBeginCapture":
            cuda.cuStreamEndCapture_ptsz(None, ctypes.byref(graph))
        later = cuda.cuCtxSynchronize()
        right = (got == NOT_SUPPORTED) != row.emulated and later == 0
        refused += not row.emulated
        wrong += not right
        if not right or not row.emulated:
            print(row.symbol, got, later, "" if right else "WRONG")
    print("refused", refused)
    return f"{wrong} are wrong" if wrong or not refused else 0


if __name__ == "__main__":
    sys.exit(main())
