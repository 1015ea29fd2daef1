#!/usr/bin/env python3
"""RMM's cases: its memory resources, with CuPy on top, as RAPIDS uses them. Managed memory is used by
host and kernels in turn."""
import ctypes
import os
import sys

import cupy
import numpy
import rmm
from rmm.allocators.cupy import rmm_cupy_allocator

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cases import case, close, equal, main  # noqa: E402

BYTES = numpy.arange(100_000, dtype=numpy.uint8)
A = numpy.linspace(-3, 3, 50_000, dtype=numpy.float32)
DOUBLE_PLUS = cupy.RawKernel(r"""extern "C" __global__ void double_plus(const float* in, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = 2 * in[i] + 1;
}""", "double_plus")


def use(resource):
    rmm.mr.set_current_device_resource(resource)
    cupy.cuda.set_allocator(rmm_cupy_allocator)


def host_view(array):
    """The managed memory of an array, as the host sees it."""
    memory = (ctypes.c_float * array.size).from_address(array.data.ptr)
    return numpy.frombuffer(memory, dtype=numpy.float32)


def compute(array):
    out = cupy.empty_like(array)
    DOUBLE_PLUS(((array.size + 255) // 256,), (256,), (array, out, numpy.int32(array.size)))
    return out


def there_and_back():
    buffer = rmm.DeviceBuffer.to_device(BYTES.tobytes())
    equal(numpy.frombuffer(buffer.copy_to_host(), dtype=numpy.uint8), BYTES)
    other = buffer.copy()
    equal(numpy.frombuffer(other.tobytes(), dtype=numpy.uint8), BYTES)
    buffer.resize(2 * BYTES.size)
    equal(numpy.frombuffer(buffer.tobytes(), dtype=numpy.uint8)[:BYTES.size], BYTES)


def managed_in_turn():
    array = cupy.empty(A.size, dtype=cupy.float32)
    view = host_view(array)
    view[:] = A
    for round_ in range(3):
        out = compute(array)
        cupy.cuda.get_current_stream().synchronize()
        close(host_view(out), 2 * (A + round_) + 1)
        view += 1
    close(cupy.asnumpy(array), A + 3)


@case
def device_memory():
    use(rmm.mr.CudaMemoryResource())
    there_and_back()


@case
def pool():
    use(rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), initial_pool_size=1 << 24))
    there_and_back()
    close(cupy.asnumpy(compute(cupy.asarray(A))), 2 * A + 1)


@case
def stream_ordered_pool():
    use(rmm.mr.CudaAsyncMemoryResource())
    there_and_back()
    close(cupy.asnumpy(compute(cupy.asarray(A))), 2 * A + 1)


@case
def managed_memory():
    use(rmm.mr.ManagedMemoryResource())
    there_and_back()
    managed_in_turn()


@case
def managed_pool():
    use(rmm.mr.PoolMemoryResource(rmm.mr.ManagedMemoryResource(), initial_pool_size=1 << 24))
    there_and_back()
    managed_in_turn()
    managed_in_turn()  # In memory that was used before.


@case
def managed_pool_by_reinitialize():
    rmm.reinitialize(pool_allocator=True, managed_memory=True, initial_pool_size=1 << 24)
    cupy.cuda.set_allocator(rmm_cupy_allocator)
    managed_in_turn()


@case
def statistics():
    resource = rmm.mr.StatisticsResourceAdaptor(rmm.mr.CudaMemoryResource())
    use(resource)
    kept = rmm.DeviceBuffer(size=1000)
    rmm.DeviceBuffer(size=5000)
    equal([resource.allocation_counts.current_bytes, resource.allocation_counts.peak_bytes], [1000, 6000])
    del kept


if __name__ == "__main__":
    main()
