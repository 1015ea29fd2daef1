// Driver API: interprocess sharing of device memory and events (cuIpc...). One process finds the
// other's writes, at each place and size of an allocation, and attributes of opened memory are
// right. An event of one process orders the other's work. Work that CUDA completes before it
// returns is complete for the other process, too. Wrong and ended handles are refused, and memory
// lives as long as a process has it open. With two devices ("peers"), a context of one device opens
// memory of the other. Where the other device is not visible, opening fails.
#include <signal.h>

#include "interprocess.h"

namespace {

using cuda_check::name_of;

constexpr unsigned kLinger = CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS;
constexpr size_t kSizes[] = {4'000, 100'000, 5 << 20, (40 << 20) + 4, 80 << 20};
constexpr unsigned kRounds = 60;

CUipcMemHandle handle_of(CUdeviceptr memory) {
  CUipcMemHandle handle;
  MUST(cuIpcGetMemHandle(&handle, memory));
  return handle;
}
CUdeviceptr opened(const CUipcMemHandle& handle) {
  CUdeviceptr memory = 0;
  MUST(cuIpcOpenMemHandle(&memory, handle, kLinger));
  return memory;
}

template <typename T>
T attribute(CUpointer_attribute which, CUdeviceptr of) {
  T value{};
  MUST(cuPointerGetAttribute(&value, which, of));
  return value;
}

// An allocation of either device. Small ones share a piece, and the large one is the driver's own.
struct OfDevice {
  CUipcMemHandle handle;
  int device;
  size_t bytes;
};
constexpr size_t kPeerSizes[] = {4'000, 100'000, 80 << 20};

// Values that both processes know for an allocation, by the index of its size.
unsigned value_of(size_t place, unsigned turn) {
  return 1000 * turn + 10 * static_cast<unsigned>(place);
}
void write_ends(CUdeviceptr memory, size_t bytes, unsigned value) {
  MUST(cuMemcpyHtoD(memory, &value, 4));
  const unsigned last = value + 1;
  MUST(cuMemcpyHtoD(memory + bytes - 4, &last, 4));
}
bool ends_are(CUdeviceptr memory, size_t bytes, unsigned value) {
  return Device::read(memory) == value && Device::read(memory + bytes - 4) == value + 1;
}

// Allocations of all sizes. Some of them are adjacent.
void share_memory(const Partner& partner) {
  CUdeviceptr memory[std::size(kSizes)];
  for (size_t i = 0; i < std::size(kSizes); ++i) {
    memory[i] = Device::memory(kSizes[i]);
    (void)Device::memory(1 << 20);
    write_ends(memory[i], kSizes[i], value_of(i, 1));
    const CUipcMemHandle handle = handle_of(memory[i]), again = handle_of(memory[i] + 100);
    EXPECT(std::memcmp(&handle, &again, sizeof handle) == 0);
    EXPECT(attribute<unsigned>(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, memory[i]) == 1);
    partner.tell(handle);
  }
  partner.meet();
  for (size_t i = 0; i < std::size(kSizes); ++i) {
    EXPECT(ends_are(memory[i], kSizes[i], value_of(i, 2)));
    write_ends(memory[i], kSizes[i], value_of(i, 3));
  }
  partner.meet();
  partner.meet();  // The partner has closed them.
  // A handle ends with its memory. New memory at that address has another handle.
  const CUipcMemHandle ended = handle_of(memory[0]);
  MUST(cuMemFree(memory[0]));
  partner.tell(ended);
  partner.meet();
  for (size_t i = 1; i < std::size(kSizes); ++i) MUST(cuMemFree(memory[i]));
}

void check_attributes(CUdeviceptr memory, size_t bytes, CUcontext context) {
  CUdeviceptr base = 0;
  size_t size = 0;
  MUST(cuMemGetAddressRange(&base, &size, memory + bytes / 2));
  EXPECT(base == memory && size == bytes);
  const CUdeviceptr inside = memory + bytes - 1;
  EXPECT(attribute<unsigned>(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, inside) == CU_MEMORYTYPE_DEVICE);
  EXPECT(attribute<CUdeviceptr>(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, inside) == inside);
  EXPECT(attribute<CUdeviceptr>(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, inside) == memory);
  EXPECT(attribute<size_t>(CU_POINTER_ATTRIBUTE_RANGE_SIZE, inside) == bytes);
  EXPECT(attribute<int>(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, inside) == 0);
  EXPECT(attribute<unsigned>(CU_POINTER_ATTRIBUTE_IS_MANAGED, inside) == 0);
  EXPECT(attribute<unsigned>(CU_POINTER_ATTRIBUTE_MAPPED, inside) == 1);
  EXPECT(attribute<unsigned>(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, inside) == 0);
  EXPECT(attribute<CUcontext>(CU_POINTER_ATTRIBUTE_CONTEXT, inside) == context);
  unsigned value = 0;
  MUST_BE(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD(memory + bytes - 3, &value, 4));
}

void use_memory(const Partner& partner, const Device& device) {
  CUdeviceptr memory[std::size(kSizes)];
  for (size_t i = 0; i < std::size(kSizes); ++i) {
    const auto handle = partner.hear<CUipcMemHandle>();
    memory[i] = opened(handle);
    check_attributes(memory[i], kSizes[i], device.context);
    EXPECT(opened(handle) == memory[i]);
    MUST(cuIpcCloseMemHandle(memory[i]));  // Closes one of two.
    EXPECT(ends_are(memory[i], kSizes[i], value_of(i, 1)));
    // As kernels see it, from a non-blocking stream.
    const CUstream stream = Device::stream(CU_STREAM_NON_BLOCKING);
    device.launch_fill(stream, memory[i], 1, value_of(i, 2));
    device.launch_fill(stream, memory[i] + kSizes[i] - 4, 1, value_of(i, 2) + 1);
    MUST(cuStreamSynchronize(stream));
    MUST_BE(CUDA_ERROR_INVALID_VALUE, cuMemFree(memory[i]));
    CUipcMemHandle own;
    MUST_BE(CUDA_ERROR_INVALID_VALUE, cuIpcGetMemHandle(&own, memory[i]));
  }
  partner.meet();
  partner.meet();
  for (size_t i = 0; i < std::size(kSizes); ++i) {
    EXPECT(ends_are(memory[i], kSizes[i], value_of(i, 3)));
    MUST(cuIpcCloseMemHandle(memory[i]));
    MUST_BE(CUDA_ERROR_INVALID_VALUE, cuIpcCloseMemHandle(memory[i]));
    unsigned value = 0;
    MUST_BE(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH(&value, memory[i], 4));
    MUST_BE(CUDA_ERROR_INVALID_VALUE,
            cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory[i]));
  }
  partner.meet();
  CUdeviceptr none = 0;
  const auto ended = partner.hear<CUipcMemHandle>();
  MUST_BE(CUDA_ERROR_INVALID_VALUE, cuIpcOpenMemHandle(&none, ended, kLinger));
  partner.meet();
}

// Two devices of one server. Kernels of the current context's device write the opened memory, and
// copies bring it into that device's own memory.
void use_of_both(const Device& here, const OfDevice& given, unsigned before, unsigned after) {
  MUST(cuCtxSetCurrent(here.context));
  const CUdeviceptr memory = opened(given.handle);
  EXPECT(attribute<int>(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, memory + 1) == given.device);
  EXPECT(attribute<size_t>(CU_POINTER_ATTRIBUTE_RANGE_SIZE, memory + 1) == given.bytes);
  EXPECT(ends_are(memory, given.bytes, before));
  const CUstream stream = Device::stream(CU_STREAM_NON_BLOCKING);
  const CUdeviceptr own = Device::memory(given.bytes);
  MUST(cuMemcpyDtoDAsync(own, memory, given.bytes, stream));
  here.launch_fill(stream, memory, 1, after);
  here.launch_fill(stream, memory + given.bytes - 4, 1, after + 1);
  MUST(cuStreamSynchronize(stream));
  EXPECT(ends_are(own, given.bytes, before) && ends_are(memory, given.bytes, after));
  MUST(cuMemcpyDtoD(memory, own, given.bytes));
  EXPECT(ends_are(memory, given.bytes, before));
  here.launch_fill(stream, memory, 1, after);
  here.launch_fill(stream, memory + given.bytes - 4, 1, after + 1);
  MUST(cuStreamSynchronize(stream));
  MUST(cuMemFree(own));
  MUST(cuIpcCloseMemHandle(memory));
  unsigned value = 0;
  MUST_BE(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH(&value, memory, 4));
}

std::vector<CUdeviceptr> give_of_both(const Device (&devices)[2], const Partner* const (&to)[2]) {
  std::vector<CUdeviceptr> all;
  for (const Device& of : devices) {
    MUST(cuCtxSetCurrent(of.context));
    for (const size_t bytes : kPeerSizes) {
      all.push_back(Device::memory(bytes));
      write_ends(all.back(), bytes, 10);
      for (const Partner* partner : to) {
        partner->tell(OfDevice{handle_of(all.back()), of.device, bytes});
      }
    }
  }
  return all;
}

void lead_peers(const Partner& both, const Partner& one, const char* image) {
  const Device devices[2] = {Device(image, 0), Device(image, 1)};
  const std::vector<CUdeviceptr> memory = give_of_both(devices, {&both, &one});
  both.meet();  // The partner has used everything, in contexts of either device.
  one.meet();
  (void)one.hear<char>();  // The partner has used the memory of its visible device.
  for (size_t i = 0; i < memory.size(); ++i) {
    const bool of_first = i < std::size(kPeerSizes);
    MUST(cuCtxSetCurrent(devices[of_first ? 0 : 1].context));
    const size_t bytes = kPeerSizes[i % std::size(kPeerSizes)];
    EXPECT(ends_are(memory[i], bytes, of_first ? 30 : 40));
  }
  for (const CUdeviceptr each : memory) MUST(cuMemFree(each));
}

void follow_peers(const Partner& leader, const char* image) {
  const Device devices[2] = {Device(image, 0), Device(image, 1)};
  for (size_t i = 0; i < 2 * std::size(kPeerSizes); ++i) {
    const auto given = leader.hear<OfDevice>();
    use_of_both(devices[1 - given.device], given, 10, 20);  // The other device's context first.
    use_of_both(devices[given.device], given, 20, 30);
  }
  leader.meet();
}

// Only the second device is visible here, as the first.
void see_one(const Partner& leader, const char* image) {
  const Device device(image);
  int count = 0;
  MUST(cuDeviceGetCount(&count));
  EXPECT(count == 1);
  std::vector<OfDevice> visible;
  for (size_t i = 0; i < 2 * std::size(kPeerSizes); ++i) {
    const auto given = leader.hear<OfDevice>();
    if (given.device == 1) visible.push_back({given.handle, 0, given.bytes});
    if (given.device == 1) continue;
    CUdeviceptr memory = 0;
    MUST_BE(CUDA_ERROR_MAP_FAILED, cuIpcOpenMemHandle(&memory, given.handle, kLinger));
  }
  leader.meet();
  for (const OfDevice& given : visible) use_of_both(device, given, 30, 40);
  leader.tell('.');
}

// Checks without a second process.
void wrong_calls(const Device&) {
  const CUdeviceptr memory = Device::memory(4096);
  CUipcMemHandle handle = handle_of(memory);
  CUdeviceptr out = 0;
  MUST_BE(CUDA_ERROR_INVALID_CONTEXT, cuIpcOpenMemHandle(&out, handle, kLinger));
  MUST_BE(CUDA_ERROR_INVALID_VALUE, cuIpcOpenMemHandle(&out, handle, 0));
  MUST_BE(CUDA_ERROR_INVALID_VALUE, cuIpcOpenMemHandle(nullptr, handle, kLinger));
  for (const int changed : {0, 7, 20, 31, 40, 63}) {
    CUipcMemHandle other = handle;
    other.reserved[changed] = static_cast<char>(other.reserved[changed] + 77);
    EXPECT(cuIpcOpenMemHandle(&out, other, kLinger) != CUDA_SUCCESS);
  }
  std::memset(&handle, 0, sizeof handle);
  MUST_BE(CUDA_ERROR_INVALID_VALUE, cuIpcOpenMemHandle(&out, handle, kLinger));
  std::memset(&handle, 0x5a, sizeof handle);
  MUST_BE(CUDA_ERROR_INVALID_VALUE, cuIpcOpenMemHandle(&out, handle, kLinger));
  MUST_BE(CUDA_ERROR_INVALID_VALUE, cuIpcGetMemHandle(nullptr, memory));
  MUST_BE(CUDA_ERROR_INVALID_VALUE, cuIpcGetMemHandle(&handle, 0));
  MUST_BE(CUDA_ERROR_INVALID_VALUE,
          cuIpcGetMemHandle(&handle, reinterpret_cast<CUdeviceptr>(Device::pinned(4096))));
  MUST_BE(CUDA_ERROR_INVALID_VALUE, cuIpcCloseMemHandle(memory));
  MUST_BE(CUDA_ERROR_INVALID_VALUE, cuIpcCloseMemHandle(0));
  MUST(cuMemFree(memory));
  MUST_BE(CUDA_ERROR_INVALID_VALUE, cuIpcGetMemHandle(&handle, memory));

  CUipcEventHandle events;
  CUevent event = nullptr;
  MUST_BE(CUDA_ERROR_INVALID_VALUE, cuEventCreate(&event, CU_EVENT_INTERPROCESS));
  const CUevent own = Device::event(CU_EVENT_DISABLE_TIMING);
  MUST_BE(CUDA_ERROR_INVALID_HANDLE, cuIpcGetEventHandle(&events, own));
  const CUevent shared = Device::event(CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING);
  MUST(cuIpcGetEventHandle(&events, shared));
  MUST_BE(CUDA_ERROR_INVALID_CONTEXT, cuIpcOpenEventHandle(&event, events));
  std::memset(&events, 0x5a, sizeof events);
  MUST_BE(CUDA_ERROR_INVALID_VALUE, cuIpcOpenEventHandle(&event, events));
  MUST(cuEventDestroy(shared));
}

// Each process records an event behind slow work, and the other's stream waits for it.
void share_events(const Partner& partner, const Device& device, bool leads) {
  const CUstream stream = Device::stream(CU_STREAM_NON_BLOCKING);
  CUdeviceptr memory, seen = Device::memory(4);
  CUevent event;
  if (leads) {
    memory = Device::memory(4096);
    partner.tell(handle_of(memory));
    event = Device::event(CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING);
    CUipcEventHandle handle;
    MUST(cuIpcGetEventHandle(&handle, event));
    partner.tell(handle);
  } else {
    memory = opened(partner.hear<CUipcMemHandle>());
    const auto handle = partner.hear<CUipcEventHandle>();
    MUST(cuIpcOpenEventHandle(&event, handle));
    MUST(cuEventQuery(event));  // Never recorded, so it is complete.
    float milliseconds = 0;
    MUST_BE(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(&milliseconds, event, event));
  }
  partner.meet();
  for (unsigned round = 1; round <= 6; ++round) {
    if ((round % 2 == 1) == leads) {
      if (round == 3 || round == 4) device.launch_long(stream, memory);
      device.launch_linger(stream, memory, round);
      MUST(cuEventRecord(event, stream));
      partner.meet();
      partner.meet();
      continue;
    }
    partner.meet();
    if (round <= 2) {
      MUST(cuStreamWaitEvent(stream, event, 0));
      MUST(cuMemcpyDtoDAsync(seen, memory, 4, stream));
      MUST(cuStreamSynchronize(stream));
      EXPECT(Device::read(seen) == round);
    } else if (round <= 4) {
      MUST(cuEventSynchronize(event));
      EXPECT(Device::read(memory) == round);
    } else {
      CUresult state = CUDA_ERROR_NOT_READY;
      while ((state = cuEventQuery(event)) == CUDA_ERROR_NOT_READY) usleep(1000);
      MUST(state);
      EXPECT(Device::read(memory) == round);
    }
    partner.meet();
  }
  partner.meet();
  MUST(cuEventDestroy(event));
  if (!leads) MUST(cuIpcCloseMemHandle(memory));
  partner.meet();
}

// The leader writes to the pipe only when its call has returned. The other's work must then find
// the results.
void answered_early(const Partner& partner, const Device& device, bool leads) {
  constexpr unsigned kCount = 20'000;
  const CUstream stream = Device::stream(CU_STREAM_NON_BLOCKING);
  if (leads) {
    const CUdeviceptr memory = Device::memory(kCount * 4);
    partner.tell(handle_of(memory));
    const CUDA_ARRAY_DESCRIPTOR line = {64, 0, CU_AD_FORMAT_FLOAT, 1};
    CUarray array;
    MUST(cuArrayCreate(&array, &line));
    const float row[64] = {};
    std::vector<CUdeviceptr> others;
    std::vector<unsigned> values(kCount);
    for (unsigned round = 1; round <= kRounds; ++round) {
      const unsigned count = round % 2 == 0 ? kCount : 1;
      for (unsigned& value : values) value = round;
      const bool frees = round % 3 == 0 && round < 16;
      if (frees) values[0] = 0;
      MUST(cuMemcpyHtoD(memory, values.data(), count * 4));
      if (frees) {  // Each of these waits for queued work: the copy, for its stream.
        const CUdeviceptr other = Device::memory(4096);
        const bool copies = round % 9 == 6, ends_array = round == 9;
        device.launch_linger(copies ? nullptr : stream, memory, round);
        if (copies) {
          MUST(cuMemcpyHtoA(array, 0, row, sizeof row));
        } else if (ends_array) {
          MUST(cuArrayDestroy(array));
          array = nullptr;
        } else {
          MUST(cuMemFree(other));
        }
        if (copies || ends_array) others.push_back(other);
      }
      partner.tell(count);
      (void)partner.hear<char>();
      if (array == nullptr) MUST(cuArrayCreate(&array, &line));
    }
    for (const CUdeviceptr other : others) MUST(cuMemFree(other));
    MUST(cuArrayDestroy(array));
    MUST(cuMemFree(memory));
    return;
  }
  const CUdeviceptr memory = opened(partner.hear<CUipcMemHandle>());
  const CUdeviceptr copy = Device::memory(kCount * 4);
  std::vector<unsigned> values(kCount);
  for (unsigned round = 1; round <= kRounds; ++round) {
    const auto count = partner.hear<unsigned>();
    MUST(cuMemcpyDtoDAsync(copy, memory, kCount * 4, stream));
    MUST(cuStreamSynchronize(stream));
    MUST(cuMemcpyDtoH(values.data(), copy, kCount * 4));
    if (values[0] != round || (count > 1 && values[count - 1] != round)) {
      std::printf("FAILED: round %u: the other process finds %u and %u\n", round, values[0],
                  values[count - 1]);
      std::exit(1);
    }
    if (round == kRounds) MUST(cuIpcCloseMemHandle(memory));
    partner.tell('.');
  }
}

// The process that made the memory and recorded the event has been killed.
void maker_dies(const char* program, const char* image) {
  const Partner maker = Partner::start(program, {image, "maker"});
  const Device device(image);
  const auto handle = maker.hear<CUipcMemHandle>();
  const auto events = maker.hear<CUipcEventHandle>();
  const CUdeviceptr memory = opened(handle);
  CUevent event;
  MUST(cuIpcOpenEventHandle(&event, events));
  maker.tell('.');
  (void)maker.hear<char>();  // The maker has recorded its event behind work that never ends.
  maker.end(SIGKILL);
  EXPECT(Device::read(memory) == 77);
  const CUstream stream = Device::stream(CU_STREAM_NON_BLOCKING);
  device.launch_fill(stream, memory, 1, 78);
  MUST(cuStreamSynchronize(stream));
  EXPECT(Device::read(memory) == 78);
  // No wait for the dead process may last forever.
  (void)cuEventSynchronize(event);
  MUST(cuIpcCloseMemHandle(memory));
  CUdeviceptr none = 0;
  while (cuIpcOpenMemHandle(&none, handle, kLinger) == CUDA_SUCCESS) {  // It ends a bit later.
    MUST(cuIpcCloseMemHandle(none));
    usleep(10'000);
  }
}

void make_and_stay(const Partner& partner, const Device& device) {
  const CUdeviceptr memory = Device::memory(4096);
  const CUdeviceptr flag = Device::memory(4), seen = Device::memory(4);
  const unsigned value = 77, zero = 0;
  MUST(cuMemcpyHtoD(memory, &value, 4));
  MUST(cuMemcpyHtoD(flag, &zero, 4));
  partner.tell(handle_of(memory));
  const CUevent event = Device::event(CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING);
  CUipcEventHandle handle;
  MUST(cuIpcGetEventHandle(&handle, event));
  partner.tell(handle);
  (void)partner.hear<char>();
  const CUstream stream = Device::stream(CU_STREAM_NON_BLOCKING);
  device.launch_wait(stream, flag, seen);
  MUST(cuEventRecord(event, stream));
  partner.tell('.');
  pause();
}

// Prints a handle in hexadecimal digits, and lives until it is told to end.
void give(const Device&) {
  const CUdeviceptr memory = Device::memory(4096);
  write_ends(memory, 4096, 4711);
  const CUipcMemHandle handle = handle_of(memory);
  for (const char byte : handle.reserved) std::printf("%02x", static_cast<unsigned char>(byte));
  std::printf("\n");
  std::fflush(stdout);
  char byte;
  while (read(0, &byte, 1) > 0) {
  }
}

// Opens the handle of another program, which may belong to another run.
void take(const Device&) {
  CUipcMemHandle handle;
  for (char& byte : handle.reserved) {
    unsigned value = 0;
    EXPECT(std::scanf("%2x", &value) == 1);
    byte = static_cast<char>(value);
  }
  CUdeviceptr memory = 0;
  const CUresult result = cuIpcOpenMemHandle(&memory, handle, kLinger);
  const bool right = result == CUDA_SUCCESS && ends_are(memory, 4096, 4711);
  std::printf("%s\n", right ? "found it" : name_of(result));
}

}  // namespace

int main(int argc, char** argv) {
  EXPECT(argc == 3 || argc == 5);
  const char* const image = argv[1];
  const std::string what = argv[2];
  end_after(100);
  if (what == "death") {
    maker_dies(argv[0], image);
    std::printf("PASSED\n");
    return 0;
  }
  if (what == "peers") {
    const Partner both = Partner::start(argv[0], {image, "both"});
    setenv("CUDA_VISIBLE_DEVICES", "1", 1);
    const Partner one = Partner::start(argv[0], {image, "one"});
    unsetenv("CUDA_VISIBLE_DEVICES");
    lead_peers(both, one, image);
    both.end();
    one.end();
    std::printf("PASSED\n");
    return 0;
  }
  if (what == "give" || what == "take") {
    const Device device(image);
    what == "give" ? give(device) : take(device);
    return 0;
  }
  const bool leads = argc == 3;
  const Partner partner = leads ? Partner::start(argv[0], {image, what})
                                : Partner(std::atoi(argv[3]), std::atoi(argv[4]));
  if (what == "both" || what == "one") {
    what == "both" ? follow_peers(partner, image) : see_one(partner, image);
    return 0;
  }
  const Device device(image);
  if (what == "maker") make_and_stay(partner, device);
  if (what == "memory" && leads) wrong_calls(device);
  if (what == "memory" && leads) share_memory(partner);
  if (what == "memory" && !leads) use_memory(partner, device);
  if (what == "events") share_events(partner, device, leads);
  if (what == "early") answered_early(partner, device, leads);
  if (leads) partner.end();
  if (leads) std::printf("PASSED\n");
  return 0;
}
