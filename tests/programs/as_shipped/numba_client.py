"""numba-cuda, unmodified, against NumPy: kernels, ufuncs, shared memory, atomics, reductions,
warps, cooperative grids, device arrays, streams, functions linked from CUDA C++. Small arrays,
because the device may be emulated."""
import math
import warnings

import numba
import numpy
from numba import cuda, float32, float64, int32, vectorize, guvectorize
from numba.core.errors import NumbaWarning
from numba.cuda.random import create_xoroshiro128p_states, xoroshiro128p_uniform_float32

from cases import case, close, equal, main

warnings.simplefilter("ignore", NumbaWarning)
warnings.simplefilter("ignore", numba.cuda.core.errors.NumbaPerformanceWarning)

RANDOM = numpy.random.default_rng(7)
A = RANDOM.standard_normal(1000, dtype=numpy.float32)
INTEGERS = RANDOM.integers(-1000, 1000, 1000).astype(numpy.int32)


@cuda.jit
def add(a, b, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = a[i] + b[i]


@case
def kernels():
    out = numpy.zeros_like(A)
    add[8, 128](A, A[::-1].copy(), out)  # Host arrays, copied both ways.
    equal(out, A + A[::-1])
    d = cuda.to_device(INTEGERS)
    result = cuda.device_array_like(INTEGERS)
    add.forall(d.size)(d, d, result)
    equal(result.copy_to_host(), INTEGERS * 2)


@case
def shared_memory():
    @cuda.jit
    def product(a, b, out):
        tile_a = cuda.shared.array((8, 8), float32)
        tile_b = cuda.shared.array((8, 8), float32)
        x, y = cuda.grid(2)
        column, row = cuda.threadIdx.x, cuda.threadIdx.y
        total = float32(0)
        for step in range(a.shape[1] // 8):
            tile_a[row, column] = a[y, step * 8 + column]
            tile_b[row, column] = b[step * 8 + row, x]
            cuda.syncthreads()
            for k in range(8):
                total += tile_a[row, k] * tile_b[k, column]
            cuda.syncthreads()
        out[y, x] = total

    a, b = A[:768].reshape(24, 32), A[-768:].reshape(32, 24)
    out = numpy.zeros((24, 24), numpy.float32)
    product[(3, 3), (8, 8)](a, b, out)
    close(out, a @ b, 1e-5)

    @cuda.jit
    def reversed_blocks(values, out):
        part = cuda.shared.array(0, float32)  # Its size is the launch's.
        i = cuda.threadIdx.x
        part[i] = values[cuda.grid(1)]
        cuda.syncthreads()
        out[cuda.grid(1)] = part[cuda.blockDim.x - 1 - i]

    out = numpy.zeros(960, numpy.float32)
    reversed_blocks[15, 64, 0, 64 * 4](A[:960], out)
    equal(out, A[:960].reshape(15, 64)[:, ::-1].ravel())


@case
def atomics():
    @cuda.jit
    def count(values, sums, bounds, bins, turns):
        i = cuda.grid(1)
        if i < values.size:
            cuda.atomic.add(sums, 0, float64(values[i]))
            cuda.atomic.max(bounds, 0, values[i])
            cuda.atomic.min(bounds, 1, values[i])
            cuda.atomic.add(bins, values[i] % 16, 1)
            cuda.atomic.inc(turns, 0, 6)
            cuda.atomic.cas(turns, 1, 0, i + 1)

    sums, bounds = numpy.zeros(1), numpy.zeros(2, numpy.int32)
    bins, turns = numpy.zeros(16, numpy.int32), numpy.zeros(2, numpy.uint32)
    count[8, 128](INTEGERS, sums, bounds, bins, turns)
    equal(sums[0], INTEGERS.sum())
    equal(bounds, [INTEGERS.max(), INTEGERS.min()])
    equal(bins, numpy.bincount(INTEGERS % 16, minlength=16))
    equal(turns[0], 1000 % 7)
    assert 1 <= turns[1] <= 1000


@case
def universal_functions():
    @vectorize(["float32(float32, float32)", "float64(float64, float64)"], target="cuda")
    def combine(x, y):
        return math.sqrt(x * x + y * y) + math.sin(x)

    close(combine(A, A[::-1].copy()), numpy.sqrt(A * A + A[::-1] ** 2) + numpy.sin(A), 1e-6)
    double = A.astype(numpy.float64)
    close(combine(double, 2.0), numpy.sqrt(double * double + 4) + numpy.sin(double), 1e-14)

    @guvectorize(["void(float32[:], float32[:], float32[:])"], "(n),(n)->()", target="cuda")
    def dot(x, y, out):
        total = float32(0)
        for i in range(x.shape[0]):
            total += x[i] * y[i]
        out[0] = total

    rows = A.reshape(40, 25)
    close(dot(rows, rows[::-1].copy()), (rows * rows[::-1]).sum(axis=1), 1e-5)


@case
def reductions():
    total = cuda.reduce(lambda a, b: a + b)
    close(total(A.astype(numpy.float64)), A.astype(numpy.float64).sum(), 1e-12)
    equal(total(INTEGERS), INTEGERS.sum())
    largest = cuda.Reduce(lambda a, b: a if a > b else b)
    equal(largest(cuda.to_device(INTEGERS), init=-10**6), INTEGERS.max())


@case
def mathematics():
    @cuda.jit
    def all_of_them(x, out):
        i = cuda.grid(1)
        if i < x.size:
            v = x[i]
            out[i, 0] = math.exp(v)
            out[i, 1] = math.log(v)
            out[i, 2] = math.pow(v, 1.5)
            out[i, 3] = math.erf(v)
            out[i, 4] = math.lgamma(v)
            out[i, 5] = math.tanh(v)
            out[i, 6] = math.atan2(v, 2.0)
            out[i, 7] = math.fmod(v, 0.3)
            out[i, 8] = math.cos(v * 100)
            out[i, 9] = cuda.libdevice.rsqrt(float64(v))

    def right(v):
        return [math.exp(v), math.log(v), math.pow(v, 1.5), math.erf(v), math.lgamma(v), math.tanh(v),
                math.atan2(v, 2), math.fmod(v, 0.3), math.cos(v * 100), 1 / math.sqrt(v)]

    for kind, tolerance in ((numpy.float64, 1e-13), (numpy.float32, 1e-5)):
        values = (numpy.abs(A[:200]) + 0.1).astype(kind)
        out = numpy.zeros((200, 10), kind)
        all_of_them[4, 64](values, out)
        expected = numpy.array([right(float(v)) for v in values])
        for column in range(10):
            if column not in (7, 8) or kind == numpy.float64:
                close(out[:, column], expected[:, column], tolerance)


@case
def device_functions():
    @cuda.jit(device=True)
    def gcd(a, b):
        while b:
            a, b = b, a % b
        return a

    @cuda.jit(device=True)
    def fibonacci(n):
        if n < 2:
            return n
        return fibonacci(n - 1) + fibonacci(n - 2)

    @cuda.jit
    def kernel(a, out):
        i = cuda.grid(1)
        if i < a.size:
            out[i] = gcd(a[i], 60) + fibonacci(a[i] % 8)

    values = numpy.abs(INTEGERS) + 1
    out = numpy.zeros_like(values)
    kernel[8, 128](values, out)
    series = [0, 1, 1, 2, 3, 5, 8, 13]
    equal(out, [math.gcd(int(v), 60) + series[v % 8] for v in values])


@case
def other_memory():
    table = numpy.arange(16, dtype=numpy.float64) ** 2

    @cuda.jit
    def kernel(values, out):
        squares = cuda.const.array_like(table)
        mine = cuda.local.array(8, float64)
        i = cuda.grid(1)
        if i < values.size:
            for k in range(8):
                mine[k] = values[i] * k
            out[i] = mine[abs(values[i]) % 8] + squares[abs(values[i]) % 16]

    out = numpy.zeros(1000)
    kernel[8, 128](INTEGERS, out)
    equal(out, INTEGERS * (abs(INTEGERS) % 8) + table[abs(INTEGERS) % 16])


@case
def mapped_and_managed_memory():
    """Host arrays that kernels use by their pointer. Host and kernels write to them in turn."""
    for make in (cuda.mapped_array, cuda.managed_array):
        a, out = make(1000, dtype=numpy.float32), make(1000, dtype=numpy.float32)
        a[:] = A
        for round_ in range(1, 4):
            a += 1
            add[8, 128](a, a, out)
            cuda.synchronize()
            close(out, (A + round_) * 2)
            out[:] = 0


@case
def warps():
    @cuda.jit
    def kernel(values, sums, masks):
        i = cuda.grid(1)
        value = values[i]
        masks[i] = cuda.ballot_sync(0xFFFFFFFF, value > 0)
        for distance in (16, 8, 4, 2, 1):
            value += cuda.shfl_xor_sync(0xFFFFFFFF, value, distance)
        sums[i] = value

    values = INTEGERS[:128]
    sums, masks = numpy.zeros(128, numpy.int32), numpy.zeros(128, numpy.uint32)
    kernel[2, 64](values, sums, masks)
    groups = values.reshape(4, 32)
    equal(sums, groups.sum(axis=1).repeat(32))
    equal(masks, (((groups > 0) << numpy.arange(32)).sum(axis=1)).repeat(32))


@case
def cooperative_grid():
    @cuda.jit("void(int32[:,::1])")
    def turns(board):
        column = cuda.grid(1)
        grid = cuda.cg.this_grid()
        for row in range(1, board.shape[0]):
            board[row, column] = board[row - 1, board.shape[1] - column - 1] + 1
            grid.sync()

    board = numpy.zeros((8, 256), numpy.int32)
    board[0] = numpy.arange(256)
    right = board.copy()
    for row in range(1, 8):
        right[row] = right[row - 1, ::-1] + 1
    turns[4, 64](board)
    equal(board, right)


@case
def device_arrays():
    d = cuda.to_device(A.reshape(20, 50))
    equal(d[3:7, ::5].copy_to_host(), A.reshape(20, 50)[3:7, ::5])
    d[2] = cuda.to_device(numpy.ones(50, numpy.float32))
    right = A.reshape(20, 50).copy()
    right[2] = 1
    equal(d.copy_to_host(), right)
    equal(d.ravel()[7:9].copy_to_host(), right.ravel()[7:9])
    records = numpy.zeros(40, dtype=numpy.dtype([("weight", numpy.float32), ("index", numpy.int64)],
                                               align=True))

    @cuda.jit
    def kernel(values):
        i = cuda.grid(1)
        if i < values.size:
            values[i].weight = i * 0.5
            values[i].index = -i

    kernel[1, 64](records)
    equal(records["weight"], numpy.arange(40) * 0.5)
    equal(records["index"], -numpy.arange(40))


@case
def streams():
    first, second = cuda.stream(), cuda.stream()
    pinned = cuda.pinned_array(A.shape, A.dtype)
    pinned[:] = A
    d = cuda.to_device(pinned, stream=first)
    out = cuda.device_array_like(A, stream=first)
    add[8, 128, first](d, d, out)
    done = cuda.event()
    done.record(first)
    done.wait(second)
    add[8, 128, second](out, d, out)
    result = cuda.pinned_array(A.shape, A.dtype)
    out.copy_to_host(result, stream=second)
    second.synchronize()
    equal(result, A * 2 + A)
    start, end = cuda.event(), cuda.event()
    start.record()
    add[8, 128](d, d, out)
    end.record()
    end.synchronize()
    assert start.elapsed_time(end) >= 0


@case
def random_numbers():
    @cuda.jit
    def kernel(states, out):
        i = cuda.grid(1)
        if i < out.size:
            out[i] = xoroshiro128p_uniform_float32(states, i)

    states = create_xoroshiro128p_states(1024, seed=1)
    out = numpy.zeros(1000, numpy.float32)
    kernel[8, 128](states, out)
    assert 0 <= out.min() and out.max() < 1 and abs(out.mean() - 0.5) < 0.05
    assert numpy.unique(out).size > 990


def linked(**options):
    source = cuda.CUSource(r"""
    extern "C" __device__ int weigh(float* result, float value, int index) {
      *result = value * index + 0.5f;
      return 0;
    }""")
    weigh = cuda.declare_device("weigh", "float32(float32, int32)", link=source)

    @cuda.jit(**options)
    def kernel(values, out):
        i = cuda.grid(1)
        if i < values.size:
            out[i] = weigh(values[i], int32(i))

    out = numpy.zeros_like(A)
    kernel[8, 128](A, out)
    close(out, A * numpy.arange(1000) + 0.5, 1e-6)


@case
def linked_from_source():
    linked(lto=False)


@case
def linked_at_link_time():
    linked(lto=True)


@case
def exceptions():
    @cuda.jit(debug=True, opt=False)
    def kernel(values, out):
        i = cuda.grid(1)
        if i < out.size:
            if values[i] > 10:
                raise ValueError("too much")
            out[i] = 10 // values[i]

    out = numpy.zeros(4, numpy.int32)
    kernel[1, 32](numpy.array([1, 2, 3, 4], numpy.int32), out)
    equal(out, [10, 5, 3, 2])
    for values, expected in (([1, 11, 1, 1], ValueError), ([1, 1, 0, 1], ZeroDivisionError)):
        try:
            kernel[1, 32](numpy.array(values, numpy.int32), out)
            raise AssertionError("nothing was raised")
        except expected:
            pass


@case
def interface_with_others():
    class Theirs:
        """Any library's array, by the CUDA array interface."""

        def __init__(self, array):
            self.array = array
            self.__cuda_array_interface__ = array.__cuda_array_interface__

    d = cuda.to_device(A)
    out = cuda.device_array_like(A)
    add[8, 128](Theirs(d), cuda.as_cuda_array(Theirs(d)), Theirs(out))
    equal(out.copy_to_host(), A * 2)


@case
def wrong_launches():
    @cuda.jit
    def empty():
        pass

    for wrong, expected in ((lambda: empty[1, 2048](), "INVALID_VALUE"),
                            (lambda: cuda.device_array(1 << 50, numpy.uint8), "OUT_OF_MEMORY")):
        try:
            wrong()
        except Exception as error:  # pylint: disable=broad-except
            assert expected in str(error), error
        else:
            raise AssertionError(f"no {expected}")
    out = numpy.zeros_like(A)
    add[8, 128](A, A, out)
    equal(out, A * 2)


main()
