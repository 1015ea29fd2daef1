#!/usr/bin/env python3
"""Dr.Jit's cases: traced computations that Dr.Jit compiles to PTX, compared with NumPy."""
import os
import sys

import drjit as dr
import numpy
from drjit.cuda import Float, PCG32, UInt
from drjit.cuda.ad import Float as Differentiable

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cases import case, close, equal, main  # noqa: E402

A = numpy.linspace(-3, 3, 10_000, dtype=numpy.float32)


@case
def elementwise():
    x = Float(A)
    close((dr.sin(x) * dr.exp(x) + dr.sqrt(dr.abs(x))).numpy(), numpy.sin(A) * numpy.exp(A) + numpy.sqrt(numpy.abs(A)))


@case
def reductions():
    x = Float(A)
    close(dr.sum(x * x).numpy()[0], numpy.sum(A.astype(numpy.float64) ** 2), 1e-4)
    equal([dr.max(x)[0], dr.min(x)[0]], [A.max(), A.min()])
    equal(dr.count(x < 0)[0], numpy.count_nonzero(A < 0))
    assert dr.all(x >= -3) and dr.any(x > 2)


@case
def gather_and_scatter():
    i = dr.arange(UInt, 1000)
    equal(dr.gather(Float, Float(A), 999 - i).numpy(), A[:1000][::-1])
    sums = dr.zeros(Float, 10)
    dr.scatter_reduce(dr.ReduceOp.Add, sums, Float(1.0), i % 10)
    equal(sums.numpy(), numpy.full(10, 100, numpy.float32))


@case
def prefix_sums():
    equal(dr.prefix_sum(dr.arange(UInt, 5000)).numpy(), numpy.concatenate([[0], numpy.cumsum(numpy.arange(4999))]))


@case
def loops():
    @dr.syntax
    def collatz(value):
        count = UInt(0)
        while value != 1:
            value = dr.select(value % 2 == 0, value // 2, 3 * value + 1)
            count += 1
        return count

    def reference(value):
        count = 0
        while value != 1:
            value, count = (value // 2 if value % 2 == 0 else 3 * value + 1), count + 1
        return count

    equal(collatz(dr.arange(UInt, 200) + 1).numpy(), [reference(i + 1) for i in range(200)])


@case
def random_numbers():
    numbers = PCG32(size=5000).next_float32().numpy()
    assert 0 <= numbers.min() and numbers.max() < 1 and abs(numbers.mean() - 0.5) < 0.05
    equal(PCG32(size=5000).next_float32().numpy(), numbers)


@case
def gradients():
    x = Differentiable(A)
    dr.enable_grad(x)
    dr.backward(dr.sum(x * x * x))
    close(dr.grad(x).numpy(), 3 * A * A)


@case
def compressing():
    equal(dr.compress(Float(A) > 2).numpy(), numpy.nonzero(A > 2)[0])


if __name__ == "__main__":
    main()
