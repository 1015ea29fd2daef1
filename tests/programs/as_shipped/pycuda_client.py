"""PyCUDA, unmodified, against NumPy: kernels that its nvcc compiles to machine code, PTX and fat
binaries, links of several sources, arrays, reductions, scans, random numbers, streams, memory."""
import numpy
import pycuda.autoinit  # noqa: F401  (makes the context)
import pycuda.cumath as cumath
import pycuda.curandom as curandom
import pycuda.driver as cuda
import pycuda.gpuarray as gpuarray
from pycuda.compiler import DynamicModule, SourceModule, compile as compile_source
from pycuda.elementwise import ElementwiseKernel
from pycuda.reduction import ReductionKernel
from pycuda.scan import ExclusiveScanKernel, InclusiveScanKernel
from pycuda.tools import DeviceMemoryPool, PageLockedMemoryPool

from cases import case, close, equal, main

RANDOM = numpy.random.default_rng(7)
A = RANDOM.standard_normal((37, 53), dtype=numpy.float32)
INTEGERS = RANDOM.integers(-1000, 1000, 3001).astype(numpy.int32)
SCALE = """
extern "C" __global__ void scale(float* values, float factor, int count) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) values[i] *= factor;
}"""


def scaled_by(module):
    values = A.ravel().copy()
    module.get_function("scale")(cuda.InOut(values), numpy.float32(3), numpy.int32(values.size),
                                 block=(128, 1, 1), grid=(16, 1))
    return values


@case
def source_module():
    module = SourceModule(r"""
    __constant__ float weights[4];
    __global__ void weigh(const float* in, float* out, int count) {
      __shared__ float part[64];
      int i = blockIdx.x * blockDim.x + threadIdx.x;
      part[threadIdx.x] = i < count ? in[i] : 0;
      __syncthreads();
      if (i < count) out[i] = part[threadIdx.x ^ 1] * weights[i % 4];
    }""")
    weights = numpy.array([1, 2, 0.5, -1], numpy.float32)
    address, size = module.get_global("weights")
    assert size == weights.nbytes
    cuda.memcpy_htod(address, weights)
    values = A.ravel()[:1024]
    out = numpy.zeros_like(values)
    weigh = module.get_function("weigh")
    weigh(cuda.In(values), cuda.Out(out), numpy.int32(values.size), block=(64, 1, 1), grid=(16, 1))
    equal(out, values.reshape(-1, 2)[:, ::-1].ravel() * numpy.tile(weights, 256))
    assert weigh.max_threads_per_block >= 64 and weigh.shared_size_bytes == 256


@case
def machine_code_ptx_and_fat_binary():
    for target in ("cubin", "ptx", "fatbin"):
        image = compile_source(SCALE, no_extern_c=True, target=target)
        equal(scaled_by(cuda.module_from_buffer(image)), A.ravel() * 3)


@case
def options_of_nvcc():
    for options in (["-O0"], ["-lineinfo"], ["-G"], ["--use_fast_math"], ["--maxrregcount=32"]):
        equal(scaled_by(SourceModule(SCALE, no_extern_c=True, options=options)), A.ravel() * 3)


@case
def several_sources():
    module = DynamicModule(no_extern_c=True)
    module.add_source("__device__ float twice(float x) { return 2 * x; }", nvcc_options=["-rdc=true"])
    module.add_source(r"""
    __device__ float twice(float);
    extern "C" __global__ void scale(float* values, float factor, int count) {
      int i = blockIdx.x * blockDim.x + threadIdx.x;
      if (i < count) values[i] = twice(values[i]) * factor;
    }""", nvcc_options=["-rdc=true"])
    equal(scaled_by(module.link()), A.ravel() * 2 * 3)


@case
def arrays():
    d = gpuarray.to_gpu(A)
    close((d * 2 + d / 3 - d ** 2).get(), A * 2 + A / 3 - A ** 2)
    equal((d > 0).get(), A > 0)
    equal(gpuarray.maximum(d, -d).get(), numpy.abs(A))
    equal(d[5:20].get(), A[5:20])
    values = A + 1j * A[::-1]
    on = gpuarray.to_gpu(values)
    close((on * on.conj()).get(), values * values.conj())
    double = gpuarray.to_gpu(A.astype(numpy.float64))
    for name in ("sin", "exp", "tanh"):
        close(getattr(cumath, name)(d).get(), getattr(numpy, name)(A))
        close(getattr(cumath, name)(double).get(), getattr(numpy, name)(A.astype(numpy.float64)), 1e-13)


@case
def own_kernels():
    combine = ElementwiseKernel("float a, float *x, float *y, float *z", "z[i] = a * x[i] + y[i] * y[i]", "combine")
    x, y = gpuarray.to_gpu(A), gpuarray.to_gpu(A[::-1].copy())
    z = gpuarray.empty_like(x)
    combine(numpy.float32(5), x, y, z)
    close(z.get(), 5 * A + A[::-1] ** 2)
    norm = ReductionKernel(numpy.float32, neutral="0", reduce_expr="a+b", map_expr="x[i]*x[i]", arguments="float *x")
    close(norm(x).get(), (A * A).sum(), 1e-4)


@case
def reductions():
    d, integers = gpuarray.to_gpu(A), gpuarray.to_gpu(INTEGERS)
    close(gpuarray.sum(d).get(), A.sum(), 1e-4)
    equal(gpuarray.max(integers).get(), INTEGERS.max())
    equal(gpuarray.min(integers).get(), INTEGERS.min())
    close(gpuarray.dot(d, d).get(), (A * A).sum(), 1e-4)


@case
def scans():
    for kernel, right in ((InclusiveScanKernel(numpy.int32, "a+b"), numpy.cumsum(INTEGERS)),
                          (ExclusiveScanKernel(numpy.int32, "a+b", neutral=0), numpy.cumsum(INTEGERS) - INTEGERS),
                          (InclusiveScanKernel(numpy.int32, "max(a, b)"), numpy.maximum.accumulate(INTEGERS))):
        d = gpuarray.to_gpu(INTEGERS)
        kernel(d)
        equal(d.get(), right)


@case
def random_numbers():
    generator = curandom.XORWOWRandomNumberGenerator(curandom.seed_getter_uniform)
    uniform = generator.gen_uniform(4000, numpy.float32).get()
    assert 0 <= uniform.min() and uniform.max() <= 1 and abs(uniform.mean() - 0.5) < 0.03
    normal = generator.gen_normal(4000, numpy.float64).get()
    assert abs(normal.mean()) < 0.1 and abs(normal.std() - 1) < 0.1


@case
def streams():
    stream, before, after = cuda.Stream(), cuda.Event(), cuda.Event()
    source = cuda.pagelocked_empty(A.shape, A.dtype)
    target = cuda.pagelocked_zeros_like(source)
    source[...] = A
    memory = cuda.mem_alloc(A.nbytes)
    before.record(stream)
    cuda.memcpy_htod_async(memory, source, stream)
    scale = SourceModule(SCALE, no_extern_c=True).get_function("scale").prepare("Pfi")
    scale.prepared_async_call((16, 1), (128, 1, 1), stream, memory, 3, A.size)
    cuda.memcpy_dtoh_async(target, memory, stream)
    after.record(stream)
    after.synchronize()
    equal(target, A * 3)
    assert after.time_since(before) >= 0


@case
def memory():
    pool = DeviceMemoryPool()
    d = gpuarray.to_gpu(A, allocator=pool.allocate)
    assert pool.active_blocks == 1
    equal(d.get(), A)
    del d
    pool.free_held()
    equal(PageLockedMemoryPool().allocate(A.shape, A.dtype).shape, A.shape)
    managed = cuda.managed_zeros(A.size, numpy.float32, mem_flags=cuda.mem_attach_flags.GLOBAL)
    managed[:] = A.ravel()
    SourceModule(SCALE, no_extern_c=True).get_function("scale")(
        managed, numpy.float32(3), numpy.int32(A.size), block=(128, 1, 1), grid=(16, 1))
    cuda.Context.synchronize()
    equal(managed, A.ravel() * 3)
    wide, pitch = cuda.mem_alloc_pitch(53 * 4, 37, 4)
    copy = cuda.Memcpy2D()
    copy.set_src_host(A)
    copy.set_dst_device(wide)
    copy.src_pitch, copy.dst_pitch, copy.width_in_bytes, copy.height = 53 * 4, pitch, 53 * 4, 37
    copy(aligned=True)
    back, back_copy = numpy.zeros_like(A), cuda.Memcpy2D()
    back_copy.set_src_device(wide)
    back_copy.set_dst_host(back)
    back_copy.src_pitch, back_copy.dst_pitch, back_copy.width_in_bytes, back_copy.height = pitch, 53 * 4, 53 * 4, 37
    back_copy(aligned=True)
    equal(back, A)
    free, total = cuda.mem_get_info()
    assert 0 < free <= total


@case
def wrong_kernels():
    """PyCUDA reports the error of a wrong kernel, and the program continues."""
    try:
        SourceModule("__global__ void broken() { this is none }")
        raise AssertionError("a kernel that does not compile has run")
    except cuda.CompileError as error:
        assert "broken" in str(error)
    scale = SourceModule(SCALE, no_extern_c=True).get_function("scale")
    try:
        scale(numpy.int64(0), numpy.float32(1), numpy.int32(0), block=(2048, 1, 1))
        raise AssertionError("2048 threads have run")
    except cuda.LogicError as error:
        assert "invalid" in str(error)
    equal(scaled_by(SourceModule(SCALE, no_extern_c=True)), A.ravel() * 3)


main()
