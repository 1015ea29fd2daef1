#!/usr/bin/env python3
"""Taichi's cases: kernels that Taichi compiles to PTX by itself, compared with NumPy."""
import os
import sys

import numpy
import taichi as ti

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cases import case, close, equal, main  # noqa: E402

ti.init(arch=ti.cuda, offline_cache=False, device_memory_GB=0.2, log_level=ti.WARN)
if ti.lang.impl.current_cfg().arch != ti.cuda:
    sys.exit("Taichi has not taken the GPU")
N = 4096
A = numpy.linspace(-2, 2, N, dtype=numpy.float32)


@case
def elementwise():
    field = ti.field(ti.f32, shape=N)
    field.from_numpy(A)

    @ti.kernel
    def compute():
        for i in field:
            field[i] = ti.sin(field[i]) * 2 + ti.sqrt(ti.abs(field[i]))

    compute()
    close(field.to_numpy(), numpy.sin(A) * 2 + numpy.sqrt(numpy.abs(A)))


@case
def reduction():
    field = ti.field(ti.f32, shape=N)
    field.from_numpy(A * A)

    @ti.kernel
    def total() -> ti.f32:
        result = 0.0
        for i in field:
            result += field[i]
        return result

    close(total(), numpy.sum(A * A, dtype=numpy.float64), 1e-4)


@case
def atomics():
    counts = ti.field(ti.i32, shape=16)
    largest = ti.field(ti.i32, shape=())

    @ti.kernel
    def count():
        for i in range(N):
            counts[i * i % 16] += 1
            ti.atomic_max(largest[None], i * 7 % N)

    count()
    i = numpy.arange(N)
    equal(counts.to_numpy(), numpy.bincount(i * i % 16, minlength=16))
    equal(largest[None], int((i * 7 % N).max()))


@case
def matrices():
    left = ti.Matrix.field(3, 3, ti.f32, shape=64)
    values = numpy.random.default_rng(1).random((64, 3, 3), dtype=numpy.float32)
    left.from_numpy(values)

    @ti.kernel
    def square():
        for i in left:
            left[i] = left[i] @ left[i].transpose()

    square()
    close(left.to_numpy(), values @ values.transpose(0, 2, 1))


@case
def sparse_structure():
    root = ti.root.pointer(ti.i, 64).dense(ti.i, 64)
    field = ti.field(ti.i32)
    root.place(field)

    @ti.kernel
    def fill():
        for i in range(32):
            field[i * 128] = i + 1

    @ti.kernel
    def total() -> ti.i32:
        result = 0
        for i in field:
            result += field[i]
        return result

    fill()
    equal(total(), 32 * 33 // 2)


@case
def arrays_of_numpy():
    array = A.copy()

    @ti.kernel
    def halve(values: ti.types.ndarray()):
        for i in range(values.shape[0]):
            values[i] = values[i] * 0.5

    halve(array)
    equal(array, A * numpy.float32(0.5))


@case
def loops_and_branches():
    steps = ti.field(ti.i32, shape=300)

    @ti.kernel
    def collatz():
        for i in steps:
            value, count = i + 1, 0
            while value != 1:
                value = value // 2 if value % 2 == 0 else 3 * value + 1
                count += 1
            steps[i] = count

    def reference(value):
        count = 0
        while value != 1:
            value = value // 2 if value % 2 == 0 else 3 * value + 1
            count += 1
        return count

    collatz()
    equal(steps.to_numpy(), [reference(i + 1) for i in range(300)])


@case
def gradient():
    x = ti.field(ti.f32, shape=N, needs_grad=True)
    loss = ti.field(ti.f32, shape=(), needs_grad=True)
    x.from_numpy(A)

    @ti.kernel
    def compute():
        for i in x:
            loss[None] += x[i] ** 3

    with ti.ad.Tape(loss):
        compute()
    close(x.grad.to_numpy(), 3 * A * A, 1e-4)


@case
def sorting():
    keys = ti.field(ti.i32, shape=1024)
    values = numpy.random.default_rng(2).permutation(1024).astype(numpy.int32)
    keys.from_numpy(values)
    ti.algorithms.parallel_sort(keys)
    equal(keys.to_numpy(), numpy.sort(values))


@case
def random_numbers():
    field = ti.field(ti.f32, shape=N)

    @ti.kernel
    def draw():
        for i in field:
            field[i] = ti.random()

    draw()
    drawn = field.to_numpy()
    assert 0 <= drawn.min() and drawn.max() < 1 and abs(drawn.mean() - 0.5) < 0.05, drawn[:4]


if __name__ == "__main__":
    main()
