#!/usr/bin/env python3
"""cuTile's cases: kernels of tiles in Python, which tileiras compiles, compared with NumPy. CuPy has
their arrays."""
import os
import sys

import cuda.tile as ct
import cupy
import numpy

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cases import case, close, equal, main  # noqa: E402

RANDOM = numpy.random.default_rng(10)
A = RANDOM.standard_normal((64, 64), dtype=numpy.float32)
B = RANDOM.standard_normal((64, 64), dtype=numpy.float32)
TILE = 16


def launch(kernel, grid, *arguments):
    ct.launch(cupy.cuda.get_current_stream(), (*grid, 1, 1)[:3], kernel, arguments)


@ct.kernel
def add(a, b, c):
    at = ct.bid(0)
    total = ct.load(a, index=(at,), shape=(TILE,)) + ct.load(b, index=(at,), shape=(TILE,))
    ct.store(c, index=(at,), tile=total)


@case
def elements():
    a, b = A.reshape(-1), B.reshape(-1)
    c = cupy.zeros(a.shape, cupy.float32)
    launch(add, (len(a) // TILE,), cupy.asarray(a), cupy.asarray(b), c)
    close(cupy.asnumpy(c), a + b)


@case
def part_of_a_tile():
    a, b = A.reshape(-1)[:1001], B.reshape(-1)[:1001]
    c = cupy.zeros(1001, cupy.float32)
    launch(add, (63,), cupy.asarray(a), cupy.asarray(b), c)
    close(cupy.asnumpy(c), a + b)


@ct.kernel
def exp_rows(a, c):
    row = ct.bid(0)
    values = ct.load(a, index=(row, 0), shape=(1, 64))
    shifted = ct.exp(values - ct.max(values, axis=1, keepdims=True))
    ct.store(c, index=(row, 0), tile=shifted / ct.sum(shifted, axis=1, keepdims=True))


@case
def softmax():
    c = cupy.zeros_like(cupy.asarray(A))
    launch(exp_rows, (64,), cupy.asarray(A), c)
    shifted = numpy.exp(A - A.max(axis=1, keepdims=True))
    close(cupy.asnumpy(c), shifted / shifted.sum(axis=1, keepdims=True), 1e-5)


@ct.kernel
def transpose(a, c):
    row, column = ct.bid(0), ct.bid(1)
    ct.store(c, index=(column, row), tile=ct.transpose(ct.load(a, index=(row, column), shape=(TILE, TILE))))


@case
def transposed_tiles():
    c = cupy.zeros_like(cupy.asarray(A))
    launch(transpose, (4, 4), cupy.asarray(A), c)
    equal(cupy.asnumpy(c), A.T)


@ct.kernel
def multiply(a, b, c, steps: ct.Constant[int]):
    row, column = ct.bid(0), ct.bid(1)
    total = ct.full((TILE, TILE), 0.0, dtype=ct.float32)
    for step in range(steps):
        left = ct.load(a, index=(row, step), shape=(TILE, TILE))
        total = ct.mma(left, ct.load(b, index=(step, column), shape=(TILE, TILE)), total)
    ct.store(c, index=(row, column), tile=total)


@case
def product_of_half_precision():
    c = cupy.zeros((64, 64), cupy.float32)
    a, b = (each.astype(numpy.float16) for each in (A, B))
    launch(multiply, (4, 4), cupy.asarray(a), cupy.asarray(b), c, 4)
    close(cupy.asnumpy(c), a.astype(numpy.float32) @ b.astype(numpy.float32), 1e-4)


@ct.kernel
def count(values, bins):
    at = ct.bid(0)
    ct.atomic_add(bins, ct.load(values, index=(at,), shape=(TILE,)), 1)


@case
def atomics():
    values = RANDOM.integers(0, 10, 512).astype(numpy.int32)
    bins = cupy.zeros(10, cupy.int32)
    launch(count, (32,), cupy.asarray(values), bins)
    equal(cupy.asnumpy(bins), numpy.bincount(values, minlength=10))


@ct.kernel
def pick(table, places, c):
    at = ct.bid(0)
    ct.store(c, index=(at,), tile=ct.gather(table, ct.load(places, index=(at,), shape=(TILE,))))


@case
def gather():
    table, places = A.reshape(-1), RANDOM.integers(0, A.size, 256).astype(numpy.int32)
    c = cupy.zeros(256, cupy.float32)
    launch(pick, (16,), cupy.asarray(table), cupy.asarray(places), c)
    equal(cupy.asnumpy(c), table[places])


if __name__ == "__main__":
    main()
