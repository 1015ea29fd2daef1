"""CuPy, unmodified, against NumPy: ufuncs, reductions, sorting, custom kernels, cuBLAS, cuSOLVER,
cuFFT, cuRAND, cuSPARSE, streams. Small arrays, because the device may be emulated."""
import ctypes

import cupy
import cupyx
import numpy
from cupyx import jit
from cupyx.scipy import ndimage, sparse, special

from cases import case, close, equal, main

RANDOM = numpy.random.default_rng(7)
A = RANDOM.standard_normal((37, 53), dtype=numpy.float32)
B = RANDOM.standard_normal((53, 29), dtype=numpy.float32)
INTEGERS = RANDOM.integers(-1000, 1000, 3001)


def on(array):
    return cupy.asarray(array)


def back(array):
    return cupy.asnumpy(array)


@case
def arithmetic():
    d = on(A)
    close(back(d * 2 + d / 3 - d ** 2), A * 2 + A / 3 - A ** 2)
    close(back(d + on(A[0])), A + A[0])
    equal(back((on(INTEGERS) // 7) % 5), (INTEGERS // 7) % 5)
    equal(back(on(INTEGERS) << 3 ^ 5), INTEGERS << 3 ^ 5)
    equal(back(cupy.where(d > 0, d, -d)), numpy.abs(A))


@case
def functions():
    positive = numpy.abs(A) + 0.1
    for name in ("sin", "cos", "tan", "exp", "log", "sqrt", "tanh", "arctan", "log1p", "expm1", "cbrt"):
        close(back(getattr(cupy, name)(on(positive))), getattr(numpy, name)(positive), 1e-5)
        double = positive.astype(numpy.float64)
        close(back(getattr(cupy, name)(on(double))), getattr(numpy, name)(double), 1e-13)
    close(back(cupy.hypot(on(A), 2)), numpy.hypot(A, 2))
    close(back(cupy.arctan2(on(A), on(positive))), numpy.arctan2(A, positive))
    close(back(cupy.power(on(positive), on(A))), numpy.power(positive, A))


@case
def other_types():
    half = A.astype(numpy.float16)
    close(back(on(half) * 2 + 1), half * 2 + 1, 1e-3)
    values = A + 1j * A[::-1]
    close(back(on(values) * on(values).conj() + 1j), values * values.conj() + 1j)
    close(back(cupy.exp(on(values))), numpy.exp(values))
    equal(back(on(INTEGERS).astype(numpy.int8)), INTEGERS.astype(numpy.int8))
    equal(back(on(A) > 0.5), A > 0.5)
    equal(back(on(INTEGERS).astype(numpy.uint16) * 3), INTEGERS.astype(numpy.uint16) * 3)


def check_reductions():
    d, integers = on(A), on(INTEGERS)
    for axis in (None, 0, 1):
        for name in ("sum", "mean", "max", "min", "var", "prod"):
            close(back(getattr(d, name)(axis=axis)), getattr(A, name)(axis=axis), 1e-3)
        equal(back(d.argmax(axis=axis)), A.argmax(axis=axis))
    equal(back(integers.sum()), INTEGERS.sum())
    equal(back((integers > 990).any()), (INTEGERS > 990).any())
    equal(back(cupy.count_nonzero(integers % 2)), numpy.count_nonzero(INTEGERS % 2))
    close(back(cupy.linalg.norm(d)), numpy.linalg.norm(A))
    close(back(cupy.cumsum(integers)), numpy.cumsum(INTEGERS))
    close(back(cupy.cumprod(d[0][:8])), numpy.cumprod(A[0][:8]))


def with_accelerators(accelerators):
    kept = cupy._core.get_reduction_accelerators(), cupy._core.get_routine_accelerators()
    try:
        cupy._core.set_reduction_accelerators(accelerators)
        cupy._core.set_routine_accelerators(accelerators)
        check_reductions()
    finally:
        cupy._core.set_reduction_accelerators(kept[0])
        cupy._core.set_routine_accelerators(kept[1])


@case
def reductions():
    with_accelerators([])


@case
def reductions_by_cub():
    with_accelerators(["cub"])


@case
def sorting():
    d, integers = on(A), on(INTEGERS)
    equal(back(cupy.sort(d, axis=1)), numpy.sort(A, axis=1))
    equal(back(cupy.sort(d, axis=0)), numpy.sort(A, axis=0))
    equal(back(cupy.sort(integers)), numpy.sort(INTEGERS))
    equal(back(cupy.argsort(d.ravel())), numpy.argsort(A.ravel(), kind="stable"))
    equal(back(cupy.lexsort(on(numpy.stack([A[0], A[1]])))), numpy.lexsort(numpy.stack([A[0], A[1]])))
    equal(back(cupy.partition(integers, 100))[100], numpy.sort(INTEGERS)[100])
    for got, right in zip(cupy.unique(integers, return_counts=True),
                          numpy.unique(INTEGERS, return_counts=True)):
        equal(back(got), right)
    order = numpy.sort(INTEGERS)
    equal(back(cupy.searchsorted(on(order), integers)), numpy.searchsorted(order, INTEGERS))
    equal(back(cupy.bincount(integers + 1000)), numpy.bincount(INTEGERS + 1000))
    equal(back(cupy.histogram(d, 10)[0]), numpy.histogram(A, 10)[0])


@case
def indexing():
    d = on(A)
    equal(back(d[d > 0]), A[A > 0])
    rows = numpy.array([5, 0, 5, 11])
    equal(back(d[on(rows)]), A[rows])
    equal(back(cupy.take(d, on(rows), axis=1)), numpy.take(A, rows, axis=1))
    target, right = on(numpy.zeros(53, numpy.float32)), numpy.zeros(53, numpy.float32)
    cupyx.scatter_add(target, on(rows), 1.5)
    numpy.add.at(right, rows, 1.5)
    equal(back(target), right)
    equal(back(cupy.concatenate([d, d[::-1]])[::2, ::3]), numpy.concatenate([A, A[::-1]])[::2, ::3])
    equal(back(cupy.pad(d, 2)), numpy.pad(A, 2))
    equal(back(cupy.nonzero(d > 1)[0]), numpy.nonzero(A > 1)[0])


@case
def own_kernels():
    elementwise = cupy.ElementwiseKernel("T x, T y", "T z", "z = x * x - y", "their_difference")
    close(back(elementwise(on(A), on(A[::-1].copy()))), A * A - A[::-1])
    reduction = cupy.ReductionKernel("T x", "T y", "x * x", "a + b", "y = sqrt(a)", "0", "their_norm")
    close(back(reduction(on(A), axis=1)), numpy.sqrt((A * A).sum(axis=1)))

    @cupy.fuse()
    def length(x, y):
        return cupy.sqrt(x * x + y * y) + 1

    close(back(length(on(A), on(A))), numpy.sqrt(2 * A * A) + 1)


@case
def raw_kernel():
    kernel = cupy.RawKernel(r"""
    extern "C" __global__ void block_sums(const float* in, float* out, int count) {
      __shared__ float part[64];
      int i = blockIdx.x * blockDim.x + threadIdx.x;
      part[threadIdx.x] = i < count ? in[i] : 0;
      __syncthreads();
      for (int step = 32; step > 0; step /= 2) {
        if (threadIdx.x < step) part[threadIdx.x] += part[threadIdx.x + step];
        __syncthreads();
      }
      if (threadIdx.x == 0) atomicAdd(out, part[0]);
    }""", "block_sums")
    total = cupy.zeros(1, numpy.float32)
    kernel((31,), (64,), (on(A), total, A.size))
    close(back(total)[0], A.sum(), 1e-4)
    assert kernel.attributes["max_threads_per_block"] >= 64


@case
def raw_module():
    module = cupy.RawModule(code=r"""
    __constant__ double weights[4];
    template <typename T> __global__ void weigh(const T* in, T* out, int count) {
      int i = blockIdx.x * blockDim.x + threadIdx.x;
      T sum = __shfl_xor_sync(~0u, i < count ? in[i] : T(0), 1);
      if (i < count) out[i] = sum * static_cast<T>(weights[i % 4]);
    }""", options=("-std=c++17",), name_expressions=("weigh<float>", "weigh<double>"))
    weights = numpy.array([1, 2, 0.5, -1])
    cupy.ndarray((4,), numpy.float64, module.get_global("weights"))[...] = on(weights)
    for kind in (numpy.float32, numpy.float64):
        values = A.ravel()[:256].astype(kind)
        out = cupy.zeros_like(on(values))
        name = "weigh<float>" if kind == numpy.float32 else "weigh<double>"
        module.get_function(name)((4,), (64,), (on(values), out, 256))
        close(back(out), values.reshape(-1, 2)[:, ::-1].ravel() * numpy.tile(weights, 64), 1e-6)


@case
def cooperative_kernel():
    kernel = cupy.RawKernel(r"""
    #include <cooperative_groups.h>
    extern "C" __global__ void turns(int* board, int* out) {
      auto grid = cooperative_groups::this_grid();
      board[grid.thread_rank()] = grid.thread_rank();
      grid.sync();
      out[grid.thread_rank()] = board[grid.size() - 1 - grid.thread_rank()];
    }""", "turns", enable_cooperative_groups=True)
    board, out = cupy.zeros(128, numpy.int32), cupy.zeros(128, numpy.int32)
    kernel((4,), (32,), (board, out))
    equal(back(out), numpy.arange(128)[::-1])


@case
def python_kernel():
    @jit.rawkernel()
    def scale(source, target, count):
        index = jit.threadIdx.x + jit.blockIdx.x * jit.blockDim.x
        if index < count:
            target[index] = source[index] * 2

    out = cupy.zeros(A.size, numpy.float32)
    scale((31,), (64,), (on(A.ravel()), out, numpy.uint32(A.size)))
    equal(back(out), A.ravel() * 2)


@case
def products():
    close(back(on(A) @ on(B)), A @ B, 1e-5)
    close(back(on(A).astype(numpy.float64) @ on(B).astype(numpy.float64)),
          A.astype(numpy.float64) @ B.astype(numpy.float64), 1e-13)
    values = A + 1j * A
    close(back(on(values) @ on(B)), values @ B, 1e-5)
    close(back(on(A).astype(numpy.float16) @ on(B).astype(numpy.float16)), A @ B, 1e-2)
    equal(back(on(INTEGERS[:600].reshape(20, 30)) @ on(INTEGERS[:300].reshape(30, 10))),
          INTEGERS[:600].reshape(20, 30) @ INTEGERS[:300].reshape(30, 10))
    stack = A[:36, :50].reshape(4, 9, 50)
    close(back(cupy.matmul(on(stack), on(stack.transpose(0, 2, 1)))),
          numpy.matmul(stack, stack.transpose(0, 2, 1)), 1e-5)
    close(back(cupy.einsum("ij,jk->ki", on(A), on(B))), numpy.einsum("ij,jk->ki", A, B), 1e-5)
    close(back(cupy.dot(on(A[0]), on(A[1]))), numpy.dot(A[0], A[1]), 1e-4)


@case
def linear_algebra():
    square = A[:24, :24].astype(numpy.float64) + 5 * numpy.eye(24)
    symmetric = square @ square.T
    close(back(cupy.linalg.solve(on(square), on(square[0]))), numpy.linalg.solve(square, square[0]), 1e-9)
    close(back(cupy.linalg.inv(on(square))), numpy.linalg.inv(square), 1e-9)
    close(back(cupy.linalg.svd(on(A))[1]), numpy.linalg.svd(A)[1], 1e-4)
    close(back(cupy.linalg.eigvalsh(on(symmetric))), numpy.linalg.eigvalsh(symmetric), 1e-9)
    close(back(cupy.linalg.cholesky(on(symmetric))), numpy.linalg.cholesky(symmetric), 1e-9)
    q, r = cupy.linalg.qr(on(square))
    close(back(q @ r), square, 1e-9)
    close(back(cupy.linalg.det(on(square))), numpy.linalg.det(square), 1e-9)


@case
def transforms():
    values = A[0] + 1j * A[1]
    close(back(cupy.fft.fft(on(values))), numpy.fft.fft(values), 1e-5)
    close(back(cupy.fft.ifft(on(values.astype(numpy.complex128)))), numpy.fft.ifft(values), 1e-6)
    close(back(cupy.fft.rfft(on(A), axis=1)), numpy.fft.rfft(A, axis=1), 1e-5)
    close(back(cupy.fft.fft2(on(A[:32, :48]))), numpy.fft.fft2(A[:32, :48]), 1e-5)
    close(back(cupy.fft.irfft(cupy.fft.rfft(on(A[:, :52])))), A[:, :52], 1e-5)


@case
def random_numbers():
    cupy.random.seed(3)
    uniform = back(cupy.random.rand(4000))
    assert 0 <= uniform.min() and uniform.max() <= 1 and abs(uniform.mean() - 0.5) < 0.03
    normal = back(cupy.random.standard_normal(4000))
    assert abs(normal.mean()) < 0.1 and abs(normal.std() - 1) < 0.1
    whole = back(cupy.random.randint(3, 9, 4000))
    equal(numpy.unique(whole), numpy.arange(3, 9))
    cupy.random.seed(3)
    equal(back(cupy.random.rand(4000)), uniform)
    equal(numpy.sort(back(cupy.random.permutation(500))), numpy.arange(500))
    generator = cupy.random.default_rng(5)
    numbers = back(generator.standard_normal(2000))
    assert abs(numbers.mean()) < 0.1 and abs(numbers.std() - 1) < 0.1
    whole = back(generator.integers(0, 4, 2000))
    equal(numpy.unique(whole), numpy.arange(4))
    assert abs(back(generator.exponential(size=2000)).mean() - 1) < 0.15


@case
def sparse_matrices():
    dense = numpy.where(A[:, :29] > 1, A[:, :29], 0)
    matrix = sparse.csr_matrix(on(dense))
    close(back(matrix @ on(B[:29])), dense @ B[:29])
    close(back((matrix @ matrix.T).toarray()), dense @ dense.T)
    close(back(matrix.tocsc().toarray()), dense)
    equal(back(sparse.coo_matrix(matrix).row), numpy.nonzero(dense)[0])


@case
def scientific():
    close(back(special.erf(on(A))), [[__import__("math").erf(x) for x in row] for row in A.tolist()], 1e-6)
    close(back(special.gamma(on(numpy.abs(A[0]) + 1).astype(numpy.float64))),
          [__import__("math").gamma(x) for x in (numpy.abs(A[0]) + 1).astype(numpy.float64)], 1e-6)
    kernel = numpy.array([[0, 1, 0], [1, -4, 1], [0, 1, 0]], numpy.float32)
    right = sum(kernel[y, x] * numpy.pad(A, 1)[y:y + 37, x:x + 53] for y in range(3) for x in range(3))
    close(back(ndimage.convolve(on(A), on(kernel), mode="constant")), right)


@case
def streams():
    first, second = cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream(non_blocking=True)
    pinned = cupyx.empty_pinned(A.shape, A.dtype)
    pinned[...] = A
    with first:
        d = cupy.empty_like(on(A))
        d.set(pinned, stream=first)
        doubled = d * 2
        done = first.record()
    second.wait_event(done)
    with second:
        again = doubled + 1
        result = cupyx.empty_pinned(A.shape, A.dtype)
        again.get(stream=second, out=result, blocking=False)
        second.synchronize()
    equal(result, A * 2 + 1)
    start, end = cupy.cuda.Event(), cupy.cuda.Event()
    start.record()
    on(A) + 1
    end.record()
    end.synchronize()
    assert cupy.cuda.get_elapsed_time(start, end) >= 0


@case
def graphs():
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        d = on(A)
        out = cupy.zeros_like(d)
        cupy.multiply(d, 3, out=out)  # Compiled before the capture.
        stream.synchronize()
        stream.begin_capture()
        cupy.multiply(d, 3, out=out)
        graph = stream.end_capture()
        d += 1
        graph.launch(stream)
        stream.synchronize()
    equal(back(out), (A + numpy.float32(1)) * 3)


@case
def memory():
    pool = cupy.cuda.MemoryPool()
    with cupy.cuda.using_allocator(pool.malloc):
        d = on(A)
        assert pool.used_bytes() >= A.nbytes
        equal(back(d), A)
        del d
    pool.free_all_blocks()
    with cupy.cuda.using_allocator(cupy.cuda.MemoryAsyncPool().malloc):
        equal(back(on(A) + on(A)), A + A)
    free, total = cupy.cuda.runtime.memGetInfo()
    assert 0 < free <= total


def device_view(host, bytes_, owner):
    """An array of the device over memory of the host, as inference engines use it for weights."""
    there = ctypes.c_void_p()
    result = ctypes.CDLL("libcuda.so.1").cuMemHostGetDevicePointer_v2(
        ctypes.byref(there), ctypes.c_void_p(host), 0)
    assert result == 0, result
    memory = cupy.cuda.UnownedMemory(there.value, bytes_, owner)
    return cupy.ndarray((bytes_ // 4,), cupy.float32, cupy.cuda.MemoryPointer(memory, 0))


@case
def host_memory_by_pointer():
    """Managed memory, and views of pinned and registered memory."""
    pool = cupy.cuda.MemoryPool(cupy.cuda.malloc_managed)
    with cupy.cuda.using_allocator(pool.malloc):
        close(back((on(A) * 2 + 1).sum()), (A * 2 + 1).sum(), 1e-4)
    pinned = cupy.cuda.alloc_pinned_memory(A.nbytes)
    registered = numpy.empty(A.size + 3, numpy.float32)[3:]
    cupy.cuda.runtime.hostRegister(registered.ctypes.data, registered.nbytes, 2)
    for array, address, owner in (
            (numpy.frombuffer(pinned, numpy.float32, A.size), pinned.ptr, pinned),
            (registered, registered.ctypes.data, registered)):
        view = device_view(address, A.nbytes, owner)
        array[:] = A.ravel()
        view *= 3
        cupy.cuda.get_current_stream().synchronize()
        equal(array, A.ravel() * 3)
        array[:] = 5
        assert float(view.sum()) == 5 * A.size
    cupy.cuda.runtime.hostUnregister(registered.ctypes.data)


@case
def wrong_kernels():
    """CuPy reports the error of a wrong kernel, and the program continues."""
    try:
        cupy.RawKernel('extern "C" __global__ void broken() { this is none }', "broken")((1,), (1,), ())
        raise AssertionError("a kernel that does not compile has run")
    except cupy.cuda.compiler.CompileException as error:
        assert "broken" in str(error)
    empty = cupy.RawKernel('extern "C" __global__ void empty() {}', "empty")
    try:
        empty((1,), (2048,), ())
        raise AssertionError("2048 threads have run")
    except cupy.cuda.driver.CUDADriverError as error:
        assert "INVALID_VALUE" in str(error)
    equal(back(on(A) + 1), A + 1)


main()
