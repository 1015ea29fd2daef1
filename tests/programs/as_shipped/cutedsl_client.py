"""CuTe DSL, unmodified, against NumPy: kernels in Python that its own ptxas compiles to machine code.
Element by element, tiles in registers, shared memory, copies with cp.async, loops, and matrix units."""
import ctypes

import cutlass
import cutlass.cute as cute
import numpy
from cutlass.cute.runtime import make_ptr

from cases import case, close, equal, main

RANDOM = numpy.random.default_rng(7)
A = RANDOM.standard_normal(2048, dtype=numpy.float32)
B = RANDOM.standard_normal(2048, dtype=numpy.float32)
CUDA = ctypes.CDLL("libcuda.so.1")
TYPES = {"float32": cutlass.Float32, "float16": cutlass.Float16, "int32": cutlass.Int32}


def check(result):
    if result != 0:
        raise RuntimeError(f"CUDA error {result}")


def start():
    context = ctypes.c_void_p()
    check(CUDA.cuInit(0))
    check(CUDA.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
    check(CUDA.cuCtxSetCurrent(context))


class Array:
    """An array of the device."""

    def __init__(self, host):
        self.host = numpy.ascontiguousarray(host)
        self.memory, self.bytes = ctypes.c_uint64(), ctypes.c_size_t(self.host.nbytes)
        check(CUDA.cuMemAlloc_v2(ctypes.byref(self.memory), self.bytes))
        check(CUDA.cuMemcpyHtoD_v2(self.memory, self.host.ctypes.data_as(ctypes.c_void_p), self.bytes))

    def pointer(self):
        return make_ptr(TYPES[str(self.host.dtype)], self.memory.value, cute.AddressSpace.gmem, assumed_align=16)

    def get(self):
        out = numpy.empty_like(self.host)
        check(CUDA.cuMemcpyDtoH_v2(out.ctypes.data_as(ctypes.c_void_p), self.memory, self.bytes))
        return out


def call(function, *arrays, last):
    """Calls it with pointers to the arrays. Returns the content of the last one, which is new."""
    on = [Array(each) for each in (*arrays, last)]
    function(*(each.pointer() for each in on))
    return on[-1].get()


@cute.kernel
def multiply_add(a: cute.Tensor, b: cute.Tensor, out: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    size, _, _ = cute.arch.block_dim()
    i = block * size + thread
    out[i] = a[i] * 2.0 + b[i]


@cute.jit
def launch_multiply_add(a: cute.Pointer, b: cute.Pointer, out: cute.Pointer):
    flat = cute.make_layout((2048,))
    multiply_add(cute.make_tensor(a, flat), cute.make_tensor(b, flat),
                 cute.make_tensor(out, flat)).launch(grid=(16, 1, 1), block=(128, 1, 1))


@case
def elements():
    close(call(launch_multiply_add, A, B, last=numpy.zeros_like(A)), A * 2 + B)


@cute.kernel
def transpose_tile(source: cute.Tensor, target: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    memory = cutlass.utils.SmemAllocator()
    tile = memory.allocate_tensor(cutlass.Float32, cute.make_layout((32, 32), stride=(33, 1)), 16)
    for row in cutlass.range(8):
        tile[(row * 4 + thread // 32, thread % 32)] = source[(row * 4 + thread // 32, block * 32 + thread % 32)]
    cute.arch.sync_threads()
    for row in cutlass.range(8):
        target[(block * 32 + row * 4 + thread // 32, thread % 32)] = tile[(thread % 32, row * 4 + thread // 32)]


@cute.jit
def launch_transpose(source: cute.Pointer, target: cute.Pointer):
    transpose_tile(cute.make_tensor(source, cute.make_layout((32, 64), stride=(64, 1))),
                   cute.make_tensor(target, cute.make_layout((64, 32), stride=(32, 1)))
                   ).launch(grid=(2, 1, 1), block=(128, 1, 1))


@case
def shared_memory():
    equal(call(launch_transpose, A.reshape(32, 64), last=numpy.zeros((64, 32), numpy.float32)), A.reshape(32, 64).T)


@cute.kernel
def vectors(a: cute.Tensor, b: cute.Tensor, out: cute.Tensor, pairs: cute.Layout):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    place = ((None, None), block)
    tiles = [cute.composition(each[place], pairs)[thread, None] for each in (a, b, out)]
    tiles[2].store(tiles[0].load() * tiles[1].load() + cute.math.exp(tiles[0].load()))


@cute.jit
def launch_vectors(a: cute.Pointer, b: cute.Pointer, out: cute.Pointer):
    threads, values = cute.make_layout((4, 32), stride=(32, 1)), cute.make_layout((4, 4), stride=(4, 1))
    tiler, pairs = cute.make_layout_tv(threads, values)
    whole = cute.make_layout((16, 128), stride=(128, 1))
    tiles = [cute.zipped_divide(cute.make_tensor(each, whole), tiler) for each in (a, b, out)]
    vectors(*tiles, pairs).launch(grid=(1, 1, 1), block=(128, 1, 1))


@case
def vectors_of_tiles():
    close(call(launch_vectors, A, B, last=numpy.zeros_like(A)), A * B + numpy.exp(A))


@cute.kernel
def sum_of_blocks(source: cute.Tensor, out: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    total = source[block * 128 + thread]
    for step in cutlass.range_constexpr(5):
        total += cute.arch.shuffle_sync_bfly(total, offset=1 << step)
    parts = cutlass.utils.SmemAllocator().allocate_tensor(cutlass.Int32, cute.make_layout((4,)), 16)
    if thread % 32 == 0:
        parts[thread // 32] = total
    cute.arch.sync_threads()
    if thread == 0:
        out[block] = parts[0] + parts[1] + parts[2] + parts[3]


@cute.jit
def launch_sums(source: cute.Pointer, out: cute.Pointer):
    sum_of_blocks(cute.make_tensor(source, cute.make_layout((2048,))),
                  cute.make_tensor(out, cute.make_layout((16,)))).launch(grid=(16, 1, 1), block=(128, 1, 1))


@case
def warps():
    integers = RANDOM.integers(-1000, 1000, 2048).astype(numpy.int32)
    equal(call(launch_sums, integers, last=numpy.zeros(16, numpy.int32)), integers.reshape(16, 128).sum(axis=1))


@cute.kernel
def copy_by_cp_async(source: cute.Tensor, target: cute.Tensor, copy: cute.TiledCopy):
    thread, _, _ = cute.arch.thread_idx()
    tile = cutlass.utils.SmemAllocator().allocate_tensor(
        cutlass.Float32, cute.make_layout((16, 128), stride=(128, 1)), 16)
    slice_ = copy.get_slice(thread)
    cute.copy(copy, slice_.partition_S(source), slice_.partition_D(tile))
    cute.arch.cp_async_commit_group()
    cute.arch.cp_async_wait_group(0)
    cute.arch.sync_threads()
    for row in cutlass.range(16):
        target[(row, thread)] = tile[(15 - row, thread)]


@cute.jit
def launch_cp_async(source: cute.Pointer, target: cute.Pointer):
    whole = cute.make_layout((16, 128), stride=(128, 1))
    atom = cute.make_copy_atom(cute.nvgpu.cpasync.CopyG2SOp(), cutlass.Float32, num_bits_per_copy=128)
    copy = cute.make_tiled_copy_tv(atom, cute.make_layout((4, 32), stride=(32, 1)), cute.make_layout((1, 4)))
    copy_by_cp_async(cute.make_tensor(source, whole), cute.make_tensor(target, whole),
                     copy).launch(grid=(1, 1, 1), block=(128, 1, 1))


@case
def asynchronous_copies():
    equal(call(launch_cp_async, A, last=numpy.zeros_like(A)).reshape(16, 128), A.reshape(16, 128)[::-1])


@cute.kernel
def matrix_product(a: cute.Tensor, b: cute.Tensor, c: cute.Tensor, mma: cute.TiledMma):
    thread, _, _ = cute.arch.thread_idx()
    slice_ = mma.get_slice(thread)
    parts_a, parts_b, parts_c = slice_.partition_A(a), slice_.partition_B(b), slice_.partition_C(c)
    registers_a, registers_b = mma.make_fragment_A(parts_a), mma.make_fragment_B(parts_b)
    registers_c = mma.make_fragment_C(parts_c)
    registers_c.fill(0.0)
    cute.autovec_copy(parts_a, registers_a)
    cute.autovec_copy(parts_b, registers_b)
    for k in cutlass.range_constexpr(cute.size(registers_a, mode=[2])):
        cute.gemm(mma, registers_c, registers_a[None, None, k], registers_b[None, None, k], registers_c)
    cute.autovec_copy(registers_c, parts_c)


@cute.jit
def launch_product(a: cute.Pointer, b: cute.Pointer, c: cute.Pointer):
    operation = cute.nvgpu.warp.MmaF16BF16Op(cutlass.Float16, cutlass.Float32, (16, 8, 16))
    mma = cute.make_tiled_mma(operation, cute.make_layout((2, 2, 1)))
    matrix_product(cute.make_tensor(a, cute.make_layout((64, 32), stride=(32, 1))),
                   cute.make_tensor(b, cute.make_layout((64, 32), stride=(32, 1))),
                   cute.make_tensor(c, cute.make_layout((64, 64), stride=(64, 1))),
                   mma).launch(grid=(1, 1, 1), block=(128, 1, 1))


@case
def matrix_units():
    a, b = (each.astype(numpy.float16).reshape(64, 32) for each in (A, B))
    close(call(launch_product, a, b, last=numpy.zeros((64, 64), numpy.float32)),
          a.astype(numpy.float32) @ b.astype(numpy.float32).T, 1e-4)


@case
def compiled_once():
    """A function that is compiled ahead of its calls."""
    on = [Array(each) for each in (A, B, numpy.zeros_like(A))]
    pointers = [each.pointer() for each in on]
    compiled = cute.compile(launch_multiply_add, *pointers)
    for _ in range(3):
        compiled(*pointers)
    close(on[-1].get(), A * 2 + B)


@case
def wrong_kernels():
    """CuTe DSL reports the error of a wrong kernel, and the program continues."""
    @cute.kernel
    def broken(out: cute.Tensor):
        out[0] = no_such_name  # noqa: F821

    @cute.jit
    def launch_broken(out: cute.Pointer):
        broken(cute.make_tensor(out, cute.make_layout((1,)))).launch(grid=(1, 1, 1), block=(1, 1, 1))

    try:
        call(launch_broken, last=numpy.zeros(1, numpy.float32))
        raise AssertionError("a kernel that does not compile has run")
    except Exception as error:  # pylint: disable=broad-except
        assert "no_such_name" in str(error), error
    elements()


start()
main()
