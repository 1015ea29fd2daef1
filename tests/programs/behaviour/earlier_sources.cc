// Driver API: sources of earlier copies. A synchronous copy to the device waits for the earlier
// work of blocking streams, so the program may then overwrite the sources of their asynchronous
// copies. The same holds after a wait for a later event. The copy does not wait for a non-blocking
// stream. The copies here are larger than gpurun's limit in flight, so their last bytes are read
// late.
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "driver_test.h"

namespace {

constexpr size_t kLarge = 96 << 20;
constexpr size_t kLastWord = kLarge - 4;

struct Scene {
  const Device& device;
  CUstream blocking, other, uploads;
  unsigned* source;
  CUdeviceptr to, scratch;
  CUarray array;
  CUevent event, uploaded;
};

unsigned last_word(const Scene& scene) { return Device::read(scene.to + kLastWord); }
void write_source(const Scene& scene, unsigned value) { scene.source[kLastWord / 4] = value; }

// Enqueues a slow kernel, and then a copy that reads the source.
void begin_large_copy(const Scene& scene, CUstream stream, unsigned value) {
  write_source(scene, value);
  scene.device.launch_linger(stream, scene.scratch, 1);
  MUST(cuMemcpyHtoDAsync(scene.to, scene.source, kLarge, stream));
}

void expect(const Scene& scene, unsigned value, const char* what) {
  MUST(cuCtxSynchronize());
  const unsigned seen = last_word(scene);
  if (seen == value) return;
  std::printf("FAILED: after %s the copy has %#x and not %#x\n", what, seen, value);
  std::exit(1);
}

struct Call {
  const char* name;
  std::function<void(const Scene&)> copy_in;
};

void copy_box(const Scene& scene) {
  const unsigned words[4] = {1, 2, 3, 4};
  CUDA_MEMCPY2D box = {};
  box.srcMemoryType = CU_MEMORYTYPE_HOST;
  box.srcHost = words;
  box.srcPitch = 8;
  box.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  box.dstDevice = scene.scratch;
  box.dstPitch = 16;
  box.WidthInBytes = 4;
  box.Height = 2;
  MUST(cuMemcpy2D(&box));
}

std::vector<Call> calls() {
  static const unsigned kWord = 7;
  const auto in_thread = [](const Scene& scene) {
    std::thread([&] {
      MUST(cuCtxSetCurrent(scene.device.context));
      MUST(cuMemcpyHtoD(scene.scratch, &kWord, 4));
    }).join();
  };
  return {
      {"cuMemcpyHtoD", [](const Scene& scene) { MUST(cuMemcpyHtoD(scene.scratch, &kWord, 4)); }},
      {"cuMemcpy",
       [](const Scene& scene) {
         MUST(cuMemcpy(scene.scratch, reinterpret_cast<CUdeviceptr>(&kWord), 4));
       }},
      {"cuMemcpy2D", copy_box},
      {"cuMemcpyHtoA", [](const Scene& scene) { MUST(cuMemcpyHtoA(scene.array, 0, &kWord, 4)); }},
      {"another thread's cuMemcpyHtoD", in_thread}};
}

void synchronous_copies(const Scene& scene) {
  unsigned value = 0x100;
  for (const Call& call : calls()) {
    begin_large_copy(scene, scene.blocking, ++value);
    call.copy_in(scene);
    write_source(scene, 0xee);
    expect(scene, value, call.name);
  }
}

// A blocking stream may wait for the copy of a non-blocking one.
void joined_streams(const Scene& scene) {
  begin_large_copy(scene, scene.other, 0x200);
  MUST(cuEventRecord(scene.event, scene.other));
  MUST(cuStreamWaitEvent(scene.blocking, scene.event, 0));
  calls().front().copy_in(scene);
  write_source(scene, 0xee);
  expect(scene, 0x200, "a copy in behind a joined stream");
}

// An upload that the program waits for may do so, too.
void uploads(const Scene& scene) {
  unsigned* const word = Device::pinned(4);
  for (unsigned round = 1; round <= 3; ++round) {
    begin_large_copy(scene, scene.other, 0x300 + round);
    MUST(cuEventRecord(scene.event, scene.other));
    MUST(cuStreamWaitEvent(scene.uploads, scene.event, 0));
    MUST(cuMemcpyHtoDAsync(scene.scratch, word, 4, scene.uploads));
    MUST(cuEventRecord(scene.uploaded, scene.uploads));
    MUST(cuMemcpyHtoDAsync(scene.scratch, word, 4, scene.uploads));
    MUST(cuEventSynchronize(scene.uploaded));
    write_source(scene, 0xee);
    expect(scene, 0x300 + round, "an upload behind another stream");
  }
  MUST(cuMemFreeHost(word));
}

// The synchronous copy releases the kernel before the large copy.
void copy_releases_kernel(const Scene& scene) {
  const CUdeviceptr flag = Device::memory(4), seen = Device::memory(4);
  MUST(cuMemsetD32(flag, 0, 1));
  MUST(cuCtxSynchronize());
  write_source(scene, 0x400);
  scene.device.launch_wait(scene.other, flag, seen);
  MUST(cuMemcpyHtoDAsync(scene.to, scene.source, kLarge, scene.other));
  const unsigned go = 1;
  MUST(cuMemcpyHtoD(flag, &go, 4));
  expect(scene, 0x400, "the copy in that its stream waited for");
}

}  // namespace

int main(int argc, char** argv) {
  end_after(200);
  const Device device(argc > 1 ? argv[1] : "");
  CUDA_ARRAY_DESCRIPTOR flat = {};
  flat.Width = 64;
  flat.Format = CU_AD_FORMAT_FLOAT;
  flat.NumChannels = 1;
  CUarray array;
  MUST(cuArrayCreate(&array, &flat));
  const Scene scene = {device,
                       Device::stream(CU_STREAM_DEFAULT),
                       Device::stream(CU_STREAM_NON_BLOCKING),
                       Device::stream(CU_STREAM_NON_BLOCKING),
                       Device::pinned(kLarge),
                       Device::memory(kLarge),
                       Device::memory(64),
                       array,
                       Device::event(),
                       Device::event()};
  std::memset(scene.source, 0, kLarge);
  synchronous_copies(scene);
  joined_streams(scene);
  uploads(scene);
  copy_releases_kernel(scene);
  std::puts("PASSED");
  return 0;
}
