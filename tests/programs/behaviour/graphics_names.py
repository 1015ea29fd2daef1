#!/usr/bin/env python3
"""Graphics names: each function of cudaGL.h, cudaEGL.h and cudaVDPAU.h exists, by name and by
cuGetProcAddress, and returns CUDA_ERROR_NOT_SUPPORTED. Dr.Jit and Warp look them up at their start, and take a
library without them for none.
"""
import ctypes
import os
import sys
import tomllib

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
NOT_SUPPORTED = 801
AT_LEAST = 35  # Of CUDA 13's three headers.


def graphics_rows():
    with open(os.path.join(ROOT, "driver_abi/cuda_driver.toml"), "rb") as file:
        rows = tomllib.load(file)
    return {name: row for name, row in rows.items()
            if isinstance(row, dict) and row.get("reason", "").startswith("graphics interoperation")}


def main():
    cuda, wrong = ctypes.CDLL("libcuda.so.1"), []
    if cuda.cuInit(0) != 0:
        sys.exit("FAILED: cuInit")
    rows = graphics_rows()
    for name, row in rows.items():
        nothing = [ctypes.c_void_p(0)] * len(row.get("parameters", ()))
        result = getattr(cuda, name)(*nothing)
        if result != NOT_SUPPORTED:
            wrong.append(f"{name} returns {result}")
        key, _, version = row["key"].partition("@")
        address = ctypes.c_void_p()
        found = cuda.cuGetProcAddress_v2(key.encode(), ctypes.byref(address), int(version.split("/")[0]),
                                         ctypes.c_uint64(0), None)
        if found != 0 or not address.value:
            wrong.append(f"cuGetProcAddress of {key}: {found}")
        elif ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * len(nothing))(address.value)(*nothing) != result:
            wrong.append(f"cuGetProcAddress of {key}: another function")
    if wrong or len(rows) < AT_LEAST:
        sys.exit(f"FAILED: {len(rows)} names, {wrong}")
    print("PASSED")


main()
