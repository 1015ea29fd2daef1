#!/usr/bin/env python3
"""cuda.core's cases: NVIDIA's Python API of the driver. Programs by NVRTC, links, launches, memory
resources, streams, events, graphs and textures."""
import ctypes
import os
import sys

import numpy
from cuda.core import (Device, DeviceMemoryResource, DeviceMemoryResourceOptions, EventOptions, GraphMemoryResource,
                       LaunchConfig, LegacyPinnedMemoryResource, Linker, LinkerOptions, ObjectCode, Program,
                       ProgramOptions, StreamOptions, VirtualMemoryResource, launch)
from cuda.core.graph import GraphBuilder, GraphDefinition
from cuda.core.texture import OpaqueArrayOptions, ResourceDescriptor, TextureObjectOptions
from cuda.core.utils import StridedMemoryView, copy_batch

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cases import case, close, equal, main  # noqa: E402

DEVICE = Device()
DEVICE.set_current()
STREAM = DEVICE.create_stream()
PINNED = LegacyPinnedMemoryResource()
CAPABILITY = "".join(str(part) for part in DEVICE.compute_capability)
A = numpy.linspace(-3, 3, 10_000, dtype=numpy.float32)
SOURCE = r"""
extern "C" __device__ void cudaGraphSetConditional(unsigned long long condition, unsigned value);
template <typename T> __global__ void scale(T* out, const T* in, T factor, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) out[i] = factor * in[i];
}
extern "C" __global__ void add(float* out, float value, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] += value;
}
extern "C" __global__ void sums(const float* in, float* out, int n) {
  extern __shared__ float part[];
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  part[threadIdx.x] = i < n ? in[i] : 0;
  for (int step = blockDim.x / 2; step > 0; step /= 2) {
    __syncthreads();
    if (threadIdx.x < step) part[threadIdx.x] += part[threadIdx.x + step];
  }
  if (threadIdx.x == 0) out[blockIdx.x] = part[0];
}
extern "C" __global__ void count_down(unsigned long long condition, int* left, int* turns) {
  ++*turns;
  cudaGraphSetConditional(condition, --*left > 0);
}
extern "C" __global__ void choose(unsigned long long condition, const int* value) {
  cudaGraphSetConditional(condition, *value);
}
"""
SCALES = ("scale<float>", "scale<double>", "scale<int>")


def options(**words):
    return ProgramOptions(std="c++17", arch=f"sm_{CAPABILITY}", **words)


def compiled(kind="ptx"):
    return Program(SOURCE, "c++", options=options()).compile(kind, name_expressions=SCALES)


MODULE = compiled()


def blocks(n, threads=128):
    return LaunchConfig(grid=(n + threads - 1) // threads, block=threads)


def view(buffer, dtype=numpy.float32):
    """A buffer that the host reaches, as an array."""
    memory = (ctypes.c_char * buffer.size).from_address(int(buffer.handle))
    return numpy.frombuffer(memory, dtype=dtype)


def upload(array, resource=None, stream=STREAM):
    buffer = (resource or DEVICE.memory_resource).allocate(array.nbytes, stream=stream)
    host = PINNED.allocate(array.nbytes)
    view(host, array.dtype)[:] = array.ravel()
    buffer.copy_from(host, stream=stream)
    stream.sync()
    return buffer


def download(buffer, dtype=numpy.float32, stream=STREAM):
    host = PINNED.allocate(buffer.size)
    buffer.copy_to(host, stream=stream)
    stream.sync()
    return view(host, dtype).copy()


@case
def device():
    assert DEVICE in Device.get_all_devices()
    assert DEVICE.properties.warp_size == 32 and DEVICE.properties.multiprocessor_count > 0
    assert len(DEVICE.uuid) == 36 and DEVICE.name and DEVICE.arch == CAPABILITY
    context = DEVICE.context
    assert context == Device(DEVICE.device_id).context and not context.is_green
    system = DEVICE.to_system_device()
    assert system.uuid_without_prefix == DEVICE.uuid and system.name == DEVICE.name


@case
def programs_of_templates():
    for name, dtype in zip(SCALES, (numpy.float32, numpy.float64, numpy.int32)):
        values = numpy.arange(1000, dtype=dtype)
        source, result = upload(values), DEVICE.allocate(values.nbytes, stream=STREAM)
        launch(STREAM, LaunchConfig(grid=3, block=64), MODULE.get_kernel(name), result, source, dtype(3), numpy.int32(1000))
        equal(download(result, dtype), values * 3)


@case
def shared_memory():
    values, n = upload(A), A.size
    result = DEVICE.allocate(40 * 4, stream=STREAM)
    config = LaunchConfig(grid=40, block=256, shmem_size=1024)
    launch(STREAM, config, MODULE.get_kernel("sums"), values, result, numpy.int32(n))
    padded = numpy.concatenate([A, numpy.zeros(40 * 256 - n, numpy.float32)])
    close(download(result), padded.reshape(40, 256).sum(axis=1), 1e-5)


@case
def machine_code():
    values = upload(A)
    launch(STREAM, blocks(A.size), compiled("cubin").get_kernel("add"), values, numpy.float32(2), numpy.int32(A.size))
    close(download(values), A + 2)


@case
def attributes_and_occupancy():
    kernel = MODULE.get_kernel("sums")
    assert kernel.num_arguments == 3
    equal([(each.offset, each.size) for each in kernel.arguments_info], [(0, 8), (8, 8), (16, 4)])
    assert kernel.attributes.max_threads_per_block > 0 and kernel.attributes.shared_size_bytes == 0
    active = kernel.occupancy.max_active_blocks_per_multiprocessor(256, 1024)
    potential = kernel.occupancy.max_potential_block_size(0, 0)
    assert active > 0 and potential.max_block_size % 32 == 0
    assert kernel.occupancy.available_dynamic_shared_memory_per_block(active, 256) >= 1024


def link(kind, target, linker_options):
    parts = [Program('extern "C" __device__ float twice(float x) { return 2 * x; }', "c++", options=options(**kind)),
             Program('extern "C" __device__ float twice(float x);\n'
                     'extern "C" __global__ void doubled(float* x, int n) { '
                     "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] = twice(x[i]); }", "c++",
                     options=options(**kind))]
    code = [each.compile("ltoir" if "link_time_optimization" in kind else "ptx") for each in parts]
    linked = Linker(*code, options=linker_options).link(target)
    values = upload(A)
    launch(STREAM, blocks(A.size), linked.get_kernel("doubled"), values, numpy.int32(A.size))
    close(download(values), 2 * A)


@case
def links_of_ptx():
    link({"relocatable_device_code": True}, "cubin", LinkerOptions(arch=f"sm_{CAPABILITY}"))


@case
def links_of_intermediate_code():
    lto = LinkerOptions(arch=f"sm_{CAPABILITY}", link_time_optimization=True, ptx=True)
    link({"relocatable_device_code": True, "link_time_optimization": True}, "ptx", lto)


@case
def object_code_of_ptx():
    again = ObjectCode.from_ptx(MODULE.code, symbol_mapping=MODULE.symbol_mapping)
    values = upload(A)
    launch(STREAM, blocks(A.size), again.get_kernel("add"), values, numpy.float32(1), numpy.int32(A.size))
    close(download(values), A + 1)


@case
def streams_and_events():
    other = DEVICE.create_stream(options=StreamOptions(nonblocking=True, priority=-1))
    timed = EventOptions(timing_enabled=True)
    values = upload(A)
    start = STREAM.record(options=timed)
    for _ in range(4):
        launch(STREAM, blocks(A.size), MODULE.get_kernel("add"), values, numpy.float32(1), numpy.int32(A.size))
        other.wait(STREAM)
        launch(other, blocks(A.size), MODULE.get_kernel("scale<float>"), values, values, numpy.float32(2),
               numpy.int32(A.size))
        STREAM.wait(other)
    end = STREAM.record(options=timed)
    end.sync()
    assert end.is_done and end - start >= 0 and other.priority == -1
    right = A.copy()
    for _ in range(4):
        right = 2 * (right + 1)
    close(download(values), right)


@case
def memory_pools():
    pool = DeviceMemoryResource(DEVICE, DeviceMemoryResourceOptions(max_size=1 << 24))
    values = upload(A, pool)
    used = pool.attributes.used_mem_current
    assert A.nbytes <= used <= 1 << 24 and pool.attributes.reserved_mem_current >= used
    values.fill(b"\x01\x02", stream=STREAM)
    equal(download(values, numpy.uint16), numpy.full(2 * A.size, 0x0201))
    values.fill(7, stream=STREAM)
    equal(download(values, numpy.uint8), numpy.full(4 * A.size, 7))
    values.close(STREAM)
    STREAM.sync()
    assert pool.attributes.used_mem_current == 0 and pool.attributes.used_mem_high >= A.nbytes
    pool.close()


@case
def pinned_memory_of_kernels():
    buffer = PINNED.allocate(A.nbytes)
    assert buffer.is_host_accessible and buffer.is_device_accessible
    host = view(buffer)
    host[:] = A
    for turn in range(3):
        launch(STREAM, blocks(A.size), MODULE.get_kernel("add"), buffer, numpy.float32(1), numpy.int32(A.size))
        STREAM.sync()
        close(host, A + 2 * turn + 1)
        host += 1
    close(download(buffer), A + 6)


@case
def virtual_memory():
    resource = VirtualMemoryResource(DEVICE)
    buffer = resource.allocate(A.nbytes)
    assert buffer.size >= A.nbytes
    host = PINNED.allocate(buffer.size)
    view(host)[:A.size] = A
    buffer.copy_from(host, stream=STREAM)
    STREAM.sync()
    grown = resource.modify_allocation(buffer, 2 * buffer.size)
    launch(STREAM, blocks(A.size), MODULE.get_kernel("add"), grown, numpy.float32(1), numpy.int32(A.size))
    close(download(grown)[:A.size], A + 1)


@case
def batches_of_copies():
    sources = [upload(A + each) for each in range(3)]
    results = [DEVICE.allocate(A.nbytes, stream=STREAM) for _ in sources]
    copy_batch(STREAM, sources, results)
    for each, result in enumerate(results):
        close(download(result), A + each)


@case
def views_of_memory():
    seen = StridedMemoryView.from_dlpack(upload(A), stream_ptr=-1)
    assert seen.is_device_accessible and seen.device_id == DEVICE.device_id and seen.size == A.nbytes
    close(download(seen.exporting_obj), A)


def add_by(stream, values, amount):
    launch(stream, blocks(A.size), MODULE.get_kernel("add"), values, numpy.float32(amount), numpy.int32(A.size))


@case
def captured_graph():
    values, other = upload(A), upload(-A)
    builder = DEVICE.create_graph_builder().begin_building()
    add_by(builder, values, 1)
    left, right = builder.split(2)
    add_by(left, values, 2)
    add_by(right, other, 5)
    GraphBuilder.join(left, right)
    add_by(left, other, 1)
    graph = left.end_building().complete()
    graph.upload(STREAM)
    for _ in range(3):
        graph.launch(STREAM)
    close(download(values), A + 9)
    close(download(other), 18 - A)
    second = DEVICE.create_graph_builder().begin_building()
    add_by(second, values, 10)
    second_graph = second.end_building().complete()
    third = DEVICE.create_graph_builder().begin_building()
    add_by(third, values, 20)
    second_graph.update(third.end_building())
    second_graph.launch(STREAM)
    close(download(values), A + 29)


@case
def host_functions_of_graphs():
    seen, values = [], upload(A)
    builder = DEVICE.create_graph_builder().begin_building()
    add_by(builder, values, 1)
    builder.callback(lambda: seen.append(len(seen)))
    add_by(builder, values, 1)
    graph = builder.end_building().complete()
    for _ in range(3):
        graph.launch(STREAM)
    STREAM.sync()
    equal(seen, [0, 1, 2])
    close(download(values), A + 6)


def conditional_options():
    return LaunchConfig(grid=1, block=1)


@case
def graphs_with_loops():
    counters = upload(numpy.array([5, 0], numpy.int32))
    left, turns = int(counters.handle), int(counters.handle) + 4
    values = upload(A)
    builder = DEVICE.create_graph_builder().begin_building()
    condition = builder.create_condition(default_value=1)
    body = builder.while_loop(condition).begin_building()
    add_by(body, values, 1)
    launch(body, conditional_options(), MODULE.get_kernel("count_down"), condition, left, turns)
    body.end_building()
    graph = builder.end_building().complete()
    graph.launch(STREAM)
    equal(download(counters, numpy.int32), [0, 5])
    close(download(values), A + 5)


@case
def graphs_with_choices():
    for value, right in ((0, 30), (1, 10), (2, 30)):
        chosen, values = upload(numpy.array([value], numpy.int32)), upload(A)
        builder = DEVICE.create_graph_builder().begin_building()
        condition = builder.create_condition(default_value=0)
        launch(builder, conditional_options(), MODULE.get_kernel("choose"), condition, chosen)
        cases = builder.switch(condition, 3)
        for amount, each in zip((30, 10, 30), cases):
            each.begin_building()
            add_by(each, values, amount)
            each.end_building()
        builder.end_building().complete().launch(STREAM)
        close(download(values), A + right)


@case
def defined_graph():
    values, copy = upload(A), DEVICE.allocate(A.nbytes, stream=STREAM)
    event = DEVICE.create_event()
    definition = GraphDefinition()
    kernel = MODULE.get_kernel("add")
    first = definition.launch(blocks(A.size), kernel, values, numpy.float32(1), numpy.int32(A.size))
    copied = first.memcpy(copy, values, A.nbytes)
    filled = first.join(copied).memset(values, 0, 4 * 10)
    child = GraphDefinition()
    child.launch(blocks(A.size), kernel, values, numpy.float32(3), numpy.int32(A.size))
    filled.embed(child).record(event)
    assert len(definition.nodes()) == 6 and len(definition.edges()) == 6
    assert first.grid == ((A.size + 127) // 128, 1, 1) and first.kernel == kernel
    assert copied.src == int(values.handle) and copied.size == A.nbytes
    graph = definition.instantiate()
    graph.launch(STREAM)
    event.sync()
    right = A + 1
    close(download(copy), right)
    right[:10] = 0
    close(download(values), right + 3)
    graph[first].update(config=blocks(A.size), kernel=kernel, args=(values, numpy.float32(100), numpy.int32(A.size)))
    graph.launch(STREAM)
    close(download(copy), right + 103)


@case
def memory_of_graphs():
    result = upload(A)
    definition = GraphDefinition()
    memory = definition.allocate(A.nbytes)
    copied = memory.memcpy(memory.dptr, result, A.nbytes)
    added = copied.launch(blocks(A.size), MODULE.get_kernel("add"), memory.dptr, numpy.float32(4), numpy.int32(A.size))
    added.memcpy(result, memory.dptr, A.nbytes).deallocate(memory.dptr)
    graph = definition.instantiate()
    for _ in range(2):
        graph.launch(STREAM)
    close(download(result), A + 8)
    resource = GraphMemoryResource(DEVICE)
    builder = DEVICE.create_graph_builder().begin_building()
    buffer = resource.allocate(A.nbytes, stream=builder)
    buffer.copy_from(result, stream=builder)
    add_by(builder, buffer, 1)
    buffer.copy_to(result, stream=builder)
    buffer.close(builder)
    captured = builder.end_building().complete()
    captured.launch(STREAM)
    captured.launch(STREAM)
    close(download(result), A + 10)
    assert resource.attributes.used_mem_high >= A.nbytes


TEXTURES = r"""
extern "C" __global__ void sample(cudaTextureObject_t image, float* out, int width, int height) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
  if (x < width && y < height) out[y * width + x] = tex2D<float>(image, x + 1.0f, y + 0.5f);
}
extern "C" __global__ void draw(cudaSurfaceObject_t image, int width, int height) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
  if (x < width && y < height) surf2Dwrite(float(10 * y + x), image, x * 4, y);
}
"""


@case
def textures_and_surfaces():
    width, height = 32, 8
    code = Program(TEXTURES, "c++", options=options()).compile("ptx")
    config = LaunchConfig(grid=(1, height), block=32)
    sizes = (numpy.int32(width), numpy.int32(height))
    array = DEVICE.create_opaque_array(OpaqueArrayOptions(shape=(width, height), format="float32", num_channels=1,
                                                          is_surface_load_store=True))
    resource = ResourceDescriptor.from_opaque_array(array)
    result = DEVICE.allocate(width * height * 4, stream=STREAM)
    right = (10 * numpy.arange(height)[:, None] + numpy.arange(width)).astype(numpy.float32)
    with DEVICE.create_surface_object(resource=resource) as surface:
        launch(STREAM, config, code.get_kernel("draw"), numpy.uint64(surface.handle), *sizes)
        array.copy_to(result, stream=STREAM)
        close(download(result).reshape(height, width), right)
    with DEVICE.create_texture_object(resource=resource, options=TextureObjectOptions(
            address_mode="clamp", filter_mode="linear")) as texture:
        launch(STREAM, config, code.get_kernel("sample"), numpy.uint64(texture.handle), result, *sizes)
        middle = (right + numpy.concatenate([right[:, 1:], right[:, -1:]], axis=1)) / 2
        close(download(result).reshape(height, width), middle, 1e-4)


@case
def errors():
    from cuda.core._utils.cuda_utils import CUDAError, NVRTCError  # No public name.
    values = upload(A)
    for failing, kind in ((lambda: Program("int x = ;", "c++", options=options()).compile("ptx"), NVRTCError),
                          (lambda: MODULE.get_kernel("missing"), CUDAError),
                          (lambda: launch(STREAM, LaunchConfig(grid=1, block=1025), MODULE.get_kernel("add"), values,
                                          numpy.float32(1), numpy.int32(1)), (CUDAError, ValueError))):
        try:
            failing()
        except kind:
            continue
        raise AssertionError(f"no {kind}")
    add_by(STREAM, values, 1)
    close(download(values), A + 1)


if __name__ == "__main__":
    main()
