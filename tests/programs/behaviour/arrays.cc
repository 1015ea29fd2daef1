// Driver API: CUDA arrays. A copy changes exactly its box, from memory of every kind, in the order
// of streams and in graphs. The faulty call itself returns its error. The memory of arrays counts,
// and creating one waits for nothing.
#include <cstdint>
#include <cstring>
#include <vector>

#include "driver_test.h"

namespace {

using Bytes = std::vector<unsigned char>;

// The line width divides no power of two, so that pieces of the traffic end inside lines.
constexpr size_t kElement = 8, kWidth = 250 * kElement, kLines = 70, kSlices = 6;
constexpr size_t kAll = kWidth * kLines * kSlices;

struct Box {
  size_t x, y, z, width, lines, slices;
};
constexpr Box kWhole = {0, 0, 0, kWidth, kLines, kSlices};
constexpr Box kInner = {3 * kElement, 5, 1, 200 * kElement, 60, 4};

unsigned g_drawn = 1;
Bytes draw(size_t count) {
  Bytes all(count);
  for (unsigned char& each : all) {
    g_drawn = g_drawn * 1664525u + 1013904223u;
    each = static_cast<unsigned char>(g_drawn >> 24);
  }
  return all;
}

CUDA_ARRAY3D_DESCRIPTOR description() {
  CUDA_ARRAY3D_DESCRIPTOR what{};
  what.Width = kWidth / kElement, what.Height = kLines, what.Depth = kSlices;
  what.Format = CU_AD_FORMAT_FLOAT;
  what.NumChannels = 2;
  return what;
}

CUarray make() {
  const CUDA_ARRAY3D_DESCRIPTOR what = description();
  CUarray array;
  MUST(cuArray3DCreate(&array, &what));
  return array;
}

// Copies of a box between an array and memory with gaps of `gap` bytes behind each line.
struct Copy {
  CUDA_MEMCPY3D words{};
  Copy(const Box& box) {
    words.WidthInBytes = box.width, words.Height = box.lines, words.Depth = box.slices;
  }
  Copy& to(CUarray array, const Box& at) {
    words.dstMemoryType = CU_MEMORYTYPE_ARRAY, words.dstArray = array;
    words.dstXInBytes = at.x, words.dstY = at.y, words.dstZ = at.z;
    return *this;
  }
  Copy& from(CUarray array, const Box& at) {
    words.srcMemoryType = CU_MEMORYTYPE_ARRAY, words.srcArray = array;
    words.srcXInBytes = at.x, words.srcY = at.y, words.srcZ = at.z;
    return *this;
  }
  Copy& from(const void* host, size_t gap) {
    words.srcMemoryType = CU_MEMORYTYPE_HOST, words.srcHost = host;
    words.srcPitch = words.WidthInBytes + gap, words.srcHeight = words.Height;
    return *this;
  }
  Copy& to(void* host, size_t gap) {
    words.dstMemoryType = CU_MEMORYTYPE_HOST, words.dstHost = host;
    words.dstPitch = words.WidthInBytes + gap, words.dstHeight = words.Height;
    return *this;
  }
  Copy& from(CUdeviceptr memory, size_t gap) {
    words.srcMemoryType = CU_MEMORYTYPE_DEVICE, words.srcDevice = memory;
    words.srcPitch = words.WidthInBytes + gap, words.srcHeight = words.Height;
    return *this;
  }
  Copy& to(CUdeviceptr memory, size_t gap) {
    words.dstMemoryType = CU_MEMORYTYPE_DEVICE, words.dstDevice = memory;
    words.dstPitch = words.WidthInBytes + gap, words.dstHeight = words.Height;
    return *this;
  }
  CUresult run() const { return cuMemcpy3D(&words); }
  CUresult run(CUstream stream) const { return cuMemcpy3DAsync(&words, stream); }
};

Bytes contents(CUarray array) {
  Bytes all(kAll);
  MUST(Copy(kWhole).from(array, kWhole).to(all.data(), 0).run());
  return all;
}

void set(CUarray array, const Bytes& all) {
  MUST(Copy(kWhole).from(all.data(), 0).to(array, kWhole).run());
}

// The contents of an array that held `all`, after lines from `memory` were copied into the box.
Bytes with(Bytes all, const Box& box, const unsigned char* memory, size_t gap) {
  for (size_t z = 0; z < box.slices; ++z) {
    for (size_t y = 0; y < box.lines; ++y) {
      std::memcpy(&all[((box.z + z) * kLines + box.y + y) * kWidth + box.x],
                  memory + (z * box.lines + y) * (box.width + gap), box.width);
    }
  }
  return all;
}

size_t bytes_with_gaps(const Box& box, size_t gap) {
  return (box.width + gap) * box.lines * box.slices;
}

void copy_from_and_to_the_host() {
  const CUarray array = make();
  for (const size_t gap : {size_t{0}, size_t{24}}) {
    const Bytes before = draw(kAll), source = draw(bytes_with_gaps(kInner, gap));
    set(array, before);
    EXPECT(contents(array) == before);
    MUST(Copy(kInner).from(source.data(), gap).to(array, kInner).run());
    const Bytes expected = with(before, kInner, source.data(), gap);
    EXPECT(contents(array) == expected);
    Bytes out = draw(source.size());
    const Bytes gaps = out;
    MUST(Copy(kInner).from(array, kInner).to(out.data(), gap).run());
    EXPECT(with(expected, kInner, out.data(), gap) == expected);
    for (size_t line = 0; gap != 0 && line < kInner.lines * kInner.slices; ++line) {
      const size_t at = line * (kInner.width + gap) + kInner.width;
      EXPECT(std::memcmp(&out[at], &gaps[at], gap) == 0);
    }
  }
  MUST(cuArrayDestroy(array));
}

void copy_within_the_device() {
  const CUarray one = make(), other = make();
  const Bytes before = draw(kAll), source = draw(bytes_with_gaps(kInner, 16));
  CUdeviceptr memory, back;
  MUST(cuMemAlloc(&memory, source.size()));
  MUST(cuMemAlloc(&back, source.size()));
  MUST(cuMemcpyHtoD(memory, source.data(), source.size()));
  MUST(cuMemcpyHtoD(back, source.data(), source.size()));
  set(one, before);
  set(other, before);
  MUST(Copy(kInner).from(memory, 16).to(one, kInner).run());
  const Bytes expected = with(before, kInner, source.data(), 16);
  EXPECT(contents(one) == expected);
  MUST(Copy(kInner).from(one, kInner).to(other, kInner).run());
  EXPECT(contents(other) == expected);
  MUST(cuMemsetD8(back, 0, source.size()));
  MUST(Copy(kInner).from(other, kInner).to(back, 16).run());
  Bytes out(source.size());
  MUST(cuMemcpyDtoH(out.data(), back, out.size()));
  EXPECT(with(expected, kInner, out.data(), 16) == expected);
  MUST(cuMemFree(memory));
  MUST(cuMemFree(back));
  MUST(cuArrayDestroy(one));
  MUST(cuArrayDestroy(other));
}

// One dimension: the functions with offsets.
void copy_lines() {
  CUDA_ARRAY_DESCRIPTOR what{};
  what.Width = 30'000, what.Format = CU_AD_FORMAT_UNSIGNED_INT32, what.NumChannels = 1;
  CUarray one, other;
  MUST(cuArrayCreate(&one, &what));
  MUST(cuArrayCreate(&other, &what));
  const size_t bytes = 4 * what.Width;
  Bytes source = draw(bytes), out(bytes);
  CUdeviceptr memory;
  MUST(cuMemAlloc(&memory, bytes));
  MUST(cuMemcpyHtoA(one, 0, source.data(), bytes));
  MUST(cuMemcpyAtoA(other, 0, one, 0, bytes));
  MUST(cuMemcpyAtoA(other, 400, one, 0, 4000));
  MUST(cuMemcpyAtoD(memory, other, 0, bytes));
  MUST(cuMemcpyDtoA(one, 8, memory, 800));
  MUST(cuMemcpyAtoH(out.data(), one, 0, bytes));
  Bytes expected = source, copied = source;
  std::memcpy(&copied[400], &source[0], 4000);
  std::memcpy(&expected[8], &copied[0], 800);
  EXPECT(out == expected);
  EXPECT(cuMemcpyAtoH(out.data(), one, bytes - 4, 8) == CUDA_ERROR_INVALID_VALUE);
  EXPECT(cuMemcpyHtoA(one, bytes, source.data(), 4) == CUDA_ERROR_INVALID_VALUE);
  EXPECT(cuMemcpyHtoA(one, ~size_t{3}, source.data(), 8) == CUDA_ERROR_INVALID_VALUE);
  EXPECT(cuMemcpyAtoA(one, 0, other, 4, bytes) == CUDA_ERROR_INVALID_VALUE);
  MUST(cuMemFree(memory));
  MUST(cuArrayDestroy(one));
  MUST(cuArrayDestroy(other));
}

struct Late {
  Gate gate;
  unsigned char* to;
  Bytes value;
  static void CUDA_CB write(void* of) {
    auto* late = static_cast<Late*>(of);
    std::memcpy(late->to, late->value.data(), late->value.size());
  }
};

// Pinned sources are read in the stream's turn, after a function that has yet to write there, and
// the calls return before that. Pageable memory is read before the call returns.
void copy_in_turn(CUstream stream) {
  const CUarray array = make();
  for (const size_t gap : {size_t{0}, size_t{8}}) {
    const Box box = {0, 3, 2, kWidth - 16, 20, 1};
    const Bytes before = draw(kAll);
    set(array, before);
    Late late;
    late.value = draw(bytes_with_gaps(box, gap));
    late.to = reinterpret_cast<unsigned char*>(Device::pinned(late.value.size()));
    late.gate.stand_in(stream);
    MUST(cuLaunchHostFunc(stream, &Late::write, &late));
    MUST(Copy(box).from(late.to, gap).to(array, box).run(stream));
    Bytes small = draw(64);
    const Box first = {0, 0, 0, 64, 1, 1};
    MUST(Copy(first).from(small.data(), 0).to(array, first).run(stream));
    Bytes sent = small;
    std::memset(small.data(), 0, small.size());
    late.gate.let_go();
    unsigned char* out = reinterpret_cast<unsigned char*>(Device::pinned(late.value.size()));
    MUST(Copy(box).from(array, box).to(out, gap).run(stream));
    MUST(cuStreamSynchronize(stream));
    const Bytes expected = with(with(before, box, late.value.data(), gap), first, sent.data(), 0);
    EXPECT(with(expected, box, out, gap) == expected);
    EXPECT(contents(array) == expected);
    MUST(cuMemFreeHost(out));
    MUST(cuMemFreeHost(late.to));
  }
  MUST(cuArrayDestroy(array));
}

// A synchronous copy is complete for work that starts later, in any stream. Creation and queries
// wait for nothing.
void order(CUstream stream) {
  CUstream other;
  MUST(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  const CUarray array = make();
  CUdeviceptr memory;
  MUST(cuMemAlloc(&memory, kAll));
  for (int round = 0; round < 20; ++round) {
    const Bytes all = draw(kAll);
    set(array, all);
    Bytes out(kAll);
    MUST(Copy(kWhole).from(array, kWhole).to(memory, 0).run(other));
    MUST(cuMemcpyDtoHAsync(out.data(), memory, kAll, other));
    MUST(cuStreamSynchronize(other));
    EXPECT(out == all);
  }
  Gate gate;
  gate.stand_in(stream);
  gate.await_begin();
  const CUarray made = make();
  CUDA_ARRAY3D_DESCRIPTOR what;
  MUST(cuArray3DGetDescriptor(&what, made));
  EXPECT(what.Width == description().Width && what.Depth == kSlices && what.NumChannels == 2);
  gate.let_go();
  MUST(cuStreamSynchronize(stream));
  MUST(cuArrayDestroy(made));
  MUST(cuArrayDestroy(array));
  MUST(cuMemFree(memory));
  MUST(cuStreamDestroy(other));
}

void launch(CUgraph graph, CUstream stream) {
  CUgraphExec exec;
  MUST(cuGraphInstantiate(&exec, graph, 0));
  MUST(cuGraphLaunch(exec, stream));
  MUST(cuStreamSynchronize(stream));
  MUST(cuGraphExecDestroy(exec));
  MUST(cuGraphDestroy(graph));
}

void graphs(CUcontext context, CUstream stream) {
  const CUarray one = make(), other = make();
  const Bytes before = draw(kAll);
  for (const bool captured : {false, true}) {
    set(one, before);
    set(other, before);
    Bytes source = draw(bytes_with_gaps(kInner, 0)), out(source.size());
    const Copy in = Copy(kInner).from(source.data(), 0).to(one, kInner);
    const Copy within = Copy(kWhole).from(one, kWhole).to(other, kWhole);
    const Copy back = Copy(kInner).from(other, kInner).to(out.data(), 0);
    CUgraph graph;
    if (captured) {
      MUST(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
      for (const Copy* each : {&in, &within, &back}) MUST(each->run(stream));
      MUST(cuStreamEndCapture(stream, &graph));
    } else {
      MUST(cuGraphCreate(&graph, 0));
      CUgraphNode node = nullptr;
      for (const Copy* each : {&in, &within, &back}) {
        const CUgraphNode behind = node;
        MUST(cuGraphAddMemcpyNode(&node, graph, &behind, behind != nullptr ? 1 : 0, &each->words,
                                  context));
      }
    }
    const Bytes later = draw(source.size());
    std::memcpy(source.data(), later.data(), later.size());  // Read at the launch.
    launch(graph, stream);
    EXPECT(out == source);
    EXPECT(contents(other) == with(before, kInner, source.data(), 0));
  }
  MUST(cuArrayDestroy(one));
  MUST(cuArrayDestroy(other));
}

void levels() {
  CUDA_ARRAY3D_DESCRIPTOR what{};
  what.Width = 64, what.Height = 32, what.Format = CU_AD_FORMAT_HALF, what.NumChannels = 1;
  CUmipmappedArray whole;
  MUST(cuMipmappedArrayCreate(&whole, &what, 4));
  CUarray first, level, again;
  MUST(cuMipmappedArrayGetLevel(&first, whole, 0));
  MUST(cuMipmappedArrayGetLevel(&level, whole, 2));
  MUST(cuMipmappedArrayGetLevel(&again, whole, 2));
  EXPECT(level == again && level != first);
  EXPECT(cuMipmappedArrayGetLevel(&again, whole, 4) == CUDA_ERROR_INVALID_VALUE);
  CUDA_ARRAY_DESCRIPTOR of_level;
  MUST(cuArrayGetDescriptor(&of_level, level));
  EXPECT(of_level.Width == 16 && of_level.Height == 8);
  const Bytes source = draw(32 * 8);
  Bytes out(source.size());
  const Box box = {0, 0, 0, 32, 8, 1};
  MUST(Copy(box).from(source.data(), 0).to(level, box).run());
  MUST(Copy(box).from(level, box).to(out.data(), 0).run());
  EXPECT(out == source);
  const Box beyond = {0, 0, 0, 32, 9, 1};
  EXPECT(Copy(beyond).from(level, beyond).to(out.data(), 0).run() == CUDA_ERROR_INVALID_VALUE);
  EXPECT(cuArrayDestroy(level) == CUDA_ERROR_INVALID_HANDLE);
  MUST(cuMipmappedArrayDestroy(whole));
  EXPECT(cuArrayGetDescriptor(&of_level, level) == CUDA_ERROR_INVALID_HANDLE);
  EXPECT(cuMipmappedArrayGetLevel(&again, whole, 0) == CUDA_ERROR_INVALID_HANDLE);
  EXPECT(cuMipmappedArrayDestroy(whole) == CUDA_ERROR_INVALID_HANDLE);
}

void refusals(CUcontext context, CUstream stream) {
  const CUarray array = make();
  Bytes host(4096);
  void* const memory = host.data();
  const auto copy = [&](const Box& box) { return Copy(box).from(memory, 0).to(array, box).run(); };
  const size_t far = size_t{1} << 63;
  EXPECT(copy({kWidth - 8, 0, 0, 16, 1, 1}) == CUDA_ERROR_INVALID_VALUE);
  EXPECT(copy({0, kLines - 1, 0, 8, 2, 1}) == CUDA_ERROR_INVALID_VALUE);
  EXPECT(copy({0, 0, kSlices, 8, 1, 1}) == CUDA_ERROR_INVALID_VALUE);
  EXPECT(copy({far, 0, 0, 8, 1, 1}) == CUDA_ERROR_INVALID_VALUE);
  EXPECT(copy({0, far, far, 8, 1, 1}) == CUDA_ERROR_INVALID_VALUE);
  EXPECT(copy({4, 0, 0, 8, 1, 1}) == CUDA_ERROR_INVALID_VALUE);  // Inside an element.
  EXPECT(copy({0, 0, 0, far, far, far}) == CUDA_ERROR_INVALID_VALUE);
  EXPECT(copy({0, 0, 0, 8, far, 1}) == CUDA_ERROR_INVALID_VALUE);
  const Box small = {0, 0, 0, 8, 1, 1};
  const auto wrong = [&](CUarray given, CUresult expected) {
    EXPECT(Copy(small).from(memory, 0).to(given, small).run() == expected);
    EXPECT(Copy(small).from(given, small).to(memory, 0).run() == expected);
    EXPECT(Copy(small).from(given, small).to(array, small).run(stream) == expected);
    EXPECT(cuMemcpyAtoH(memory, given, 0, 8) == expected);
    EXPECT(cuArrayDestroy(given) == expected);
    CUDA_ARRAY3D_DESCRIPTOR what;
    EXPECT(cuArray3DGetDescriptor(&what, given) == expected);
    CUDA_RESOURCE_DESC resource{};
    resource.resType = CU_RESOURCE_TYPE_ARRAY;
    resource.res.array.hArray = given;
    CUDA_TEXTURE_DESC texture{};
    CUtexObject object;
    CUsurfObject surface;
    EXPECT(cuTexObjectCreate(&object, &resource, &texture, nullptr) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuSurfObjectCreate(&surface, &resource) == CUDA_ERROR_INVALID_VALUE);
    CUgraph graph;
    CUgraphNode node;
    MUST(cuGraphCreate(&graph, 0));
    const Copy in = Copy(small).from(memory, 0).to(given, small);
    EXPECT(cuGraphAddMemcpyNode(&node, graph, nullptr, 0, &in.words, context) == expected);
    MUST(cuGraphDestroy(graph));
  };
  const CUarray gone = make();
  MUST(cuArrayDestroy(gone));
  wrong(gone, CUDA_ERROR_INVALID_HANDLE);
  wrong(nullptr, CUDA_ERROR_INVALID_HANDLE);
  wrong(reinterpret_cast<CUarray>(stream), CUDA_ERROR_INVALID_HANDLE);
  CUarray made;
  CUDA_ARRAY3D_DESCRIPTOR what = description();
  what.Format = static_cast<CUarray_format>(0x77);
  EXPECT(cuArray3DCreate(&made, &what) == CUDA_ERROR_INVALID_VALUE);
  what = description();
  what.NumChannels = 3;
  EXPECT(cuArray3DCreate(&made, &what) == CUDA_ERROR_INVALID_VALUE);
  what = description();
  what.Width = size_t{1} << 60;
  EXPECT(cuArray3DCreate(&made, &what) != CUDA_SUCCESS);
  EXPECT(cuTexObjectDestroy(0x4711) == CUDA_ERROR_INVALID_VALUE);
  EXPECT(cuSurfObjectDestroy(0x4711) == CUDA_ERROR_INVALID_VALUE);
  MUST(cuArrayDestroy(array));
  MUST(cuCtxSynchronize());  // No late error comes.
}

// The number of arrays of 16 MiB that fit, also after memory was used and freed.
unsigned count_arrays() {
  CUDA_ARRAY3D_DESCRIPTOR what{};
  what.Width = 1024, what.Height = 1024, what.Depth = 4;
  what.Format = CU_AD_FORMAT_UNSIGNED_INT32;
  what.NumChannels = 1;
  std::vector<CUarray> all;
  CUarray array;
  CUresult result;
  while ((result = cuArray3DCreate(&array, &what)) == CUDA_SUCCESS) all.push_back(array);
  EXPECT(result == CUDA_ERROR_OUT_OF_MEMORY);
  for (const CUarray each : all) MUST(cuArrayDestroy(each));
  return static_cast<unsigned>(all.size());
}

void memory_counts() {
  const unsigned first = count_arrays();
  CUdeviceptr memory[20];
  for (CUdeviceptr& each : memory) MUST(cuMemAlloc(&each, size_t{4} << 20));
  for (const CUdeviceptr each : memory) MUST(cuMemFree(each));
  const unsigned second = count_arrays();
  std::printf("%u arrays of 16 MiB, and again %u\n", first, second);
  EXPECT(first == second);
}

}  // namespace

int main() {
  end_after(100);
  MUST(cuInit(0));
  CUdevice device;
  MUST(cuDeviceGet(&device, 0));
  CUcontext context;
  MUST(cuDevicePrimaryCtxRetain(&context, device));
  MUST(cuCtxSetCurrent(context));
  CUstream stream;
  MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  copy_from_and_to_the_host();
  copy_within_the_device();
  copy_lines();
  copy_in_turn(stream);
  order(stream);
  graphs(context, stream);
  levels();
  refusals(context, stream);
  memory_counts();
  std::printf("PASSED\n");
  return 0;
}
