"""apigen: writes everything that is generated from driver_abi's tables into a build folder.

usage: python3 driver_abi/apigen --tables driver_abi --out build/generated [--emulated LIST]
Python 3.9 or newer, standard library only (tomllib from 3.11, else tomli).
"""

import argparse
import os
import sys

import emit_header
import table
from cuda_types import CudaTypes, TypeError_


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as stream:
        stream.write(text)


def main():
    parser = argparse.ArgumentParser(prog="apigen")
    parser.add_argument("--tables", required=True)
    parser.add_argument("--out", required=True)
    arguments = parser.parse_args()
    try:
        types = CudaTypes(os.path.join(arguments.tables, "cuda_types.toml"))
        rows = table.load(os.path.join(arguments.tables, "cuda_driver.toml"), types)
        write(os.path.join(arguments.out, "driver_abi/cuda_abi.h"),
              emit_header.render(types, rows))
    except TypeError_ as error:
        sys.exit("apigen: %s" % error)


main()
