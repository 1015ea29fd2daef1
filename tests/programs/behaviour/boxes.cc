// Driver API: boxes with gaps on either side, from, to and within the device, pageable and pinned,
// synchronous and asynchronous. Each byte of the box arrives in its place, and no other byte
// changes. Its word: "lines": only a few copies of a thousand lines, for tests that count the
// traffic. "behind" IMAGE: small copies behind a kernel that waits for another stream.
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "driver_test.h"

namespace {

// A range of `bytes`, and its expected contents.
struct Memory {
  explicit Memory(size_t bytes, CUmemorytype type, bool pinned) : kind(type), model(bytes) {
    if (type == CU_MEMORYTYPE_DEVICE) {
      device = Device::memory(bytes);
    } else if (pinned) {
      host = reinterpret_cast<unsigned char*>(Device::pinned(bytes));
    } else {
      pageable.resize(bytes);
      host = pageable.data();
    }
  }
  void fill(std::mt19937& random) {
    for (unsigned char& each : model) each = static_cast<unsigned char>(random());
    if (kind == CU_MEMORYTYPE_DEVICE) {
      MUST(cuMemcpyHtoD(device, model.data(), model.size()));
    } else {
      std::memcpy(host, model.data(), model.size());
    }
  }
  bool right() const {
    if (kind != CU_MEMORYTYPE_DEVICE) return std::memcmp(host, model.data(), model.size()) == 0;
    std::vector<unsigned char> found(model.size());
    MUST(cuMemcpyDtoH(found.data(), device, found.size()));
    return found == model;
  }

  const CUmemorytype kind;
  CUdeviceptr device = 0;
  unsigned char* host = nullptr;
  std::vector<unsigned char> pageable, model;
};

struct Side {
  size_t x, y, z, pitch, height;
  size_t at(size_t column, size_t line, size_t slice) const {
    return ((z + slice) * height + y + line) * pitch + x + column;
  }
};

struct Box {
  Side from, to;
  size_t width, lines, slices;
};

void copy(const Box& box, const Memory& from, Memory* to, CUstream stream, bool waits) {
  CUDA_MEMCPY3D words{};
  words.srcMemoryType = from.kind;
  words.srcHost = from.host;
  words.srcDevice = from.device;
  words.srcXInBytes = box.from.x, words.srcY = box.from.y, words.srcZ = box.from.z;
  words.srcPitch = box.from.pitch, words.srcHeight = box.from.height;
  words.dstMemoryType = to->kind;
  words.dstHost = to->host;
  words.dstDevice = to->device;
  words.dstXInBytes = box.to.x, words.dstY = box.to.y, words.dstZ = box.to.z;
  words.dstPitch = box.to.pitch, words.dstHeight = box.to.height;
  words.WidthInBytes = box.width, words.Height = box.lines, words.Depth = box.slices;
  if (waits) {
    MUST(cuMemcpy3D(&words));
  } else {
    MUST(cuMemcpy3DAsync(&words, stream));
  }
  for (size_t slice = 0; slice < box.slices; ++slice) {
    for (size_t line = 0; line < box.lines; ++line) {
      for (size_t column = 0; column < box.width; ++column) {
        to->model[box.to.at(column, line, slice)] = from.model[box.from.at(column, line, slice)];
      }
    }
  }
}

constexpr CUmemorytype kDevice = CU_MEMORYTYPE_DEVICE, kHost = CU_MEMORYTYPE_HOST;
struct Way {
  CUmemorytype from, to;
  bool pinned;
};
constexpr Way kWays[] = {{kHost, kDevice, false},
                         {kHost, kDevice, true},
                         {kDevice, kHost, false},
                         {kDevice, kHost, true},
                         {kDevice, kDevice, false}};

void copy_at_random(CUstream stream) {
  std::mt19937 random(7);
  const auto up_to = [&random](size_t most) { return static_cast<size_t>(random() % (most + 1)); };
  for (const Way& way : kWays) {
    Memory from(4 << 20, way.from, way.pinned), to(4 << 20, way.to, way.pinned);
    from.fill(random), to.fill(random);
    for (int trial = 0; trial < 60; ++trial) {
      Box box{};
      // Some lines are longer than a record or than two chunks of bulk.
      const size_t longest[] = {40, 3'000, 70'000, 1'200'000};
      box.width = 1 + up_to(longest[trial % 4]);
      const size_t gap = trial % 3 == 0 ? 0 : 1 + up_to(200);
      for (Side* side : {&box.from, &box.to}) {
        const bool dense = trial % 2 == (side == &box.from);
        side->x = dense ? 0 : up_to(gap);
        side->pitch = box.width + (dense ? 0 : side->x + up_to(gap));
      }
      const size_t pitch = std::max(box.from.pitch, box.to.pitch);
      const size_t rows = (4 << 20) / pitch;  // In all slices together.
      box.slices = 1 + up_to(std::min<size_t>(3, rows / 4));
      box.lines = 1 + up_to(std::min<size_t>(
                          60, rows / (box.slices + 2) > 3 ? rows / (box.slices + 2) - 3 : 0));
      for (Side* side : {&box.from, &box.to}) {
        const bool dense = trial % 2 == (side == &box.from);
        side->y = dense ? 0 : up_to(1);
        side->height = box.lines + side->y + (dense ? 0 : up_to(1));
        side->z = dense ? 0 : up_to(1);
        if (side->at(box.width - 1, box.lines - 1, box.slices - 1) >= 4 << 20)
          side->z = side->y = 0;
      }
      copy(box, from, &to, stream, trial % 5 < 3);
      if (trial % 5 >= 3) MUST(cuStreamSynchronize(stream));
      EXPECT(to.right());
      EXPECT(from.right());
    }
  }
}

void copy_a_thousand_lines(CUstream stream) {
  std::mt19937 random(8);
  for (const Way& way : kWays) {
    Memory from(1 << 20, way.from, way.pinned), to(1 << 20, way.to, way.pinned);
    from.fill(random), to.fill(random);
    const Side dense{0, 0, 0, 700, 1000}, gaps{5, 0, 0, 1000, 1000};
    for (const Box& box : {Box{dense, gaps, 700, 1000, 1}, Box{gaps, dense, 700, 1000, 1},
                           Box{gaps, gaps, 700, 1000, 1}}) {
      for (const bool waits : {true, false}) copy(box, from, &to, stream, waits);
    }
    MUST(cuStreamSynchronize(stream));
    EXPECT(to.right());
  }
}

// Many more than gpurun has memory for.
void stand_behind_a_kernel(const char* image) {
  const Device device(image);
  const CUstream stream = Device::stream(CU_STREAM_NON_BLOCKING);
  const CUstream other = Device::stream(CU_STREAM_NON_BLOCKING);
  const CUdeviceptr to = Device::memory(1 << 16), there = Device::memory(1 << 20);
  const CUdeviceptr flag = Device::memory(4), seen_by_kernel = Device::memory(4);
  std::vector<unsigned char> pageable(1 << 16, 7), seen(1 << 20);
  auto* const pinned = reinterpret_cast<unsigned char*>(Device::pinned(1 << 16));
  std::memset(pinned, 8, 1 << 16);
  MUST(cuMemsetD32(flag, 0, 1));
  MUST(cuCtxSynchronize());
  device.launch_wait(stream, flag, seen_by_kernel);
  for (int i = 0; i < 600; ++i) {
    CUDA_MEMCPY2D box{};
    box.srcMemoryType = CU_MEMORYTYPE_HOST;
    box.srcHost = i % 2 == 0 ? pinned : pageable.data();
    box.srcPitch = 100;
    box.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    box.dstDevice = to, box.dstPitch = 200;
    box.WidthInBytes = 100, box.Height = 20;
    MUST(cuMemcpy2DAsync(&box, stream));
  }
  // None of that affects another stream.
  MUST(cuMemsetD8Async(there, 9, seen.size(), other));
  MUST(cuMemcpyDtoHAsync(seen.data(), there, seen.size(), other));
  MUST(cuStreamSynchronize(other));
  EXPECT(seen.front() == 9 && seen.back() == 9);
  MUST(cuMemsetD32Async(flag, 1, 1, other));
  MUST(cuStreamSynchronize(stream));
  MUST(cuMemcpyDtoH(seen.data(), to, 200 * 20));
  EXPECT(seen[0] == 7 && seen[99] == 7 && seen[200 * 19 + 99] == 7);
}

}  // namespace

int main(int argc, char** argv) {
  end_after(200);
  if (argc > 2) {
    stand_behind_a_kernel(argv[2]);
    std::printf("PASSED\n");
    return 0;
  }
  CUdevice device;
  CUcontext context;
  MUST(cuInit(0));
  MUST(cuDeviceGet(&device, 0));
  MUST(cuCtxCreate(&context, nullptr, 0, device));
  // Ordered with the copies that wait, which use the null stream: such a copy of pageable memory
  // may return before its bytes are in the device's memory (CUDA, "API synchronization behavior").
  const CUstream stream = Device::stream(CU_STREAM_DEFAULT);
  argc > 1 ? copy_a_thousand_lines(stream) : copy_at_random(stream);
  std::printf("PASSED\n");
  return 0;
}
