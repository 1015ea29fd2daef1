// Driver API: allocations and pools that processes share by descriptors
// (cuMemExportToShareableHandle, cuMemPoolExportToShareableHandle). A
// descriptor reaches the other process by a socket, by exec or by pidfd_getfd. Both find each
// other's writes, and synchronous copies are complete for the other. The memory lives as long as a
// handle, a mapping or a descriptor, and not longer. Wrong descriptors are refused.
#include "shareable_handles.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>

namespace {

using shareable::Allocation;
using shareable::Mapping;
using shareable::Wire;

constexpr size_t kMiB = 1 << 20;
constexpr size_t kSizes[] = {2 * kMiB, 20 * kMiB, 96 * kMiB};

void write_ends(CUdeviceptr memory, size_t bytes, unsigned value) {
  const unsigned last = value + 1;
  MUST(cuMemcpyHtoD(memory, &value, 4));
  MUST(cuMemcpyHtoD(memory + bytes - 4, &last, 4));
}
bool ends_are(CUdeviceptr memory, size_t bytes, unsigned value) {
  return Device::read(memory) == value && Device::read(memory + bytes - 4) == value + 1;
}

void check_attribute() {
  int supported = 0;
  MUST(cuDeviceGetAttribute(&supported,
                            CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 0));
  EXPECT(supported == 1);
}

void refuse_descriptor(int descriptor) {
  CUmemGenericAllocationHandle memory = 0;
  const CUresult result = shareable::import_into(&memory, descriptor);
  EXPECT(result == CUDA_ERROR_INVALID_VALUE && memory == 0);
}

// Checks without a second process.
void wrong_calls() {
  const Allocation own(2 * kMiB);
  int out = -1;
  MUST_BE(CUDA_ERROR_NOT_SUPPORTED,
          cuMemExportToShareableHandle(&out, own.handle, CU_MEM_HANDLE_TYPE_FABRIC, 0));
  MUST_BE(CUDA_ERROR_INVALID_VALUE,
          cuMemExportToShareableHandle(nullptr, own.handle, shareable::kDescriptor, 0));
  MUST_BE(CUDA_ERROR_INVALID_VALUE,
          cuMemExportToShareableHandle(&out, own.handle, shareable::kDescriptor, 1));
  MUST_BE(CUDA_ERROR_INVALID_VALUE,
          cuMemExportToShareableHandle(&out, 0x4711, shareable::kDescriptor, 0));
  const Allocation unshared(2 * kMiB, CU_MEM_HANDLE_TYPE_NONE);
  MUST_BE(CUDA_ERROR_INVALID_VALUE,
          cuMemExportToShareableHandle(&out, unshared.handle, shareable::kDescriptor, 0));
  EXPECT(out == -1);

  const int descriptor = own.exported();
  CUmemGenericAllocationHandle memory = 0;
  void* const number = reinterpret_cast<void*>(static_cast<intptr_t>(descriptor));
  MUST_BE(CUDA_ERROR_NOT_SUPPORTED,
          cuMemImportFromShareableHandle(&memory, number, CU_MEM_HANDLE_TYPE_FABRIC));
  MUST_BE(CUDA_ERROR_INVALID_VALUE,
          cuMemImportFromShareableHandle(nullptr, number, shareable::kDescriptor));
  const int closed = dup(descriptor);
  close(closed);
  refuse_descriptor(closed);
  refuse_descriptor(-1);
  refuse_descriptor(1 << 20);

  const int nothing = open("/dev/null", O_RDWR), file = memfd_create("garbage", MFD_CLOEXEC);
  EXPECT(ftruncate(file, 2 * kMiB + 4096) == 0);
  int ends[2], pair[2];
  EXPECT(pipe(ends) == 0 && socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) == 0);
  refuse_descriptor(pair[0]);  // Without a message.
  for (const size_t bytes : {1, 88, 300}) {
    const std::vector<char> noise(bytes, 'g');
    EXPECT(write(pair[1], noise.data(), bytes) == static_cast<ssize_t>(bytes));
    refuse_descriptor(pair[0]);
    std::vector<char> kept(bytes);
    EXPECT(read(pair[0], kept.data(), bytes) == static_cast<ssize_t>(bytes) && kept == noise);
  }
  for (const int each : {nothing, file, ends[0], ends[1], pair[0], pair[1]}) {
    refuse_descriptor(each);
    close(each);
  }
  // The process itself may import, and a descriptor may be imported more than once.
  const Allocation again = Allocation::imported(descriptor);
  const Allocation third = Allocation::imported(descriptor);
  const Mapping here(own, 2 * kMiB), there(again, 2 * kMiB);
  write_ends(here.address, 2 * kMiB, 5);
  EXPECT(ends_are(there.address, 2 * kMiB, 5));
  close(descriptor);
}

void check_properties(const Allocation& memory, int ordinal = 0) {
  CUmemAllocationProp properties = {};
  MUST(cuMemGetAllocationPropertiesFromHandle(&properties, memory.handle));
  EXPECT(properties.type == CU_MEM_ALLOCATION_TYPE_PINNED);
  EXPECT(properties.location.type == CU_MEM_LOCATION_TYPE_DEVICE);
  EXPECT(properties.location.id == ordinal);
  EXPECT((properties.requestedHandleTypes & shareable::kDescriptor) != 0);
}

// The leader keeps nothing but the mapping of the second allocation.
void share_memory(const Partner& partner, const Wire& wire) {
  wrong_calls();
  for (size_t i = 0; i < std::size(kSizes); ++i) {
    const size_t bytes = kSizes[i];
    const unsigned value = 100 * static_cast<unsigned>(i);
    Allocation memory(bytes);
    check_properties(memory);
    Mapping mapping(memory, bytes);
    write_ends(mapping.address, bytes, value);
    const int descriptor = memory.exported();
    if (i == 1) memory.release();
    wire.send_descriptor(descriptor);
    close(descriptor);
    partner.meet();  // The partner has imported and written.
    EXPECT(ends_are(mapping.address, bytes, value + 10));
    write_ends(mapping.address, bytes, value + 20);
    partner.meet();
    partner.meet();  // The partner has read.
  }
  // On the way, the descriptor alone keeps the memory.
  {
    Allocation memory(kSizes[0]);
    Mapping mapping(memory, kSizes[0]);
    write_ends(mapping.address, kSizes[0], 7000);
    const int descriptor = memory.exported();
    wire.send_descriptor(descriptor);
    close(descriptor);
  }
  partner.meet();
  partner.meet();
}

void use_memory(const Partner& partner, const Wire& wire, const Device& device) {
  for (size_t i = 0; i < std::size(kSizes); ++i) {
    const size_t bytes = kSizes[i];
    const unsigned value = 100 * static_cast<unsigned>(i);
    const int descriptor = wire.receive_descriptor();
    Allocation memory = Allocation::imported(descriptor);
    close(descriptor);
    check_properties(memory);
    const Mapping mapping(memory, bytes);
    CUmemGenericAllocationHandle retained = 0;
    MUST(cuMemRetainAllocationHandle(&retained, reinterpret_cast<void*>(mapping.address)));
    EXPECT(retained == memory.handle);
    MUST(cuMemRelease(retained));
    if (i == 2) memory.release();  // The mapping keeps it.
    EXPECT(ends_are(mapping.address, bytes, value));
    const CUstream stream = Device::stream(CU_STREAM_NON_BLOCKING);
    device.launch_fill(stream, mapping.address, 1, value + 10);
    device.launch_fill(stream, mapping.address + bytes - 4, 1, value + 11);
    MUST(cuStreamSynchronize(stream));
    partner.meet();
    partner.meet();
    EXPECT(ends_are(mapping.address, bytes, value + 20));
    partner.meet();
  }
  partner.meet();  // The leader has released and unmapped everything.
  const int descriptor = wire.receive_descriptor();
  const Allocation memory = Allocation::imported(descriptor);
  close(descriptor);
  const Mapping mapping(memory, kSizes[0]);
  EXPECT(ends_are(mapping.address, kSizes[0], 7000));
  partner.meet();
}

// The number of a descriptor that exec passes, and of one that pidfd_getfd can fetch.
struct Numbers {
  int inherited, fetched;
  pid_t process;
};

void lend_descriptors(const Partner& partner, const Allocation& first, int inherited) {
  const Allocation second(2 * kMiB);
  const Mapping mapped(first, 2 * kMiB), other(second, 2 * kMiB);
  write_ends(mapped.address, 2 * kMiB, 30);
  write_ends(other.address, 2 * kMiB, 40);
  const int fetched = second.exported();
  (void)prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
  partner.tell(Numbers{inherited, fetched, getpid()});
  partner.meet();
  EXPECT(ends_are(mapped.address, 2 * kMiB, 31));
  const bool could_fetch = partner.hear<bool>();
  EXPECT(ends_are(other.address, 2 * kMiB, could_fetch ? 41 : 40));
}

void borrow_descriptors(const Partner& partner) {
  const auto numbers = partner.hear<Numbers>();
  const auto exchange = [](int descriptor, unsigned value) {
    const Allocation memory = Allocation::imported(descriptor);
    const Mapping mapping(memory, 2 * kMiB);
    EXPECT(ends_are(mapping.address, 2 * kMiB, value));
    write_ends(mapping.address, 2 * kMiB, value + 1);
  };
  exchange(numbers.inherited, 30);
  const int fetched = shareable::fetch_descriptor(numbers.process, numbers.fetched);
  if (fetched < 0) std::printf("pidfd_getfd is not allowed here\n");
  if (fetched >= 0) exchange(fetched, 40);
  partner.meet();
  partner.tell(fetched >= 0);
}

// A process writes to the pipe only when its call has returned. The other's work must then find the
// results: those of a copy, and those of slow work that a free has waited for.
void answered_early(const Partner& partner, const Wire& wire, const Device& device, bool leads) {
  constexpr unsigned kRounds = 24;
  const size_t bytes = 2 * kMiB;
  partner.meet();  // Both are ready.
  Allocation memory = leads ? Allocation(bytes) : Allocation::imported(wire.receive_descriptor());
  const Mapping mapping(memory, bytes);
  const CUstream stream = Device::stream(CU_STREAM_NON_BLOCKING);
  const auto write_slowly = [&](unsigned value) {
    const CUdeviceptr other = Device::memory(4096);
    device.launch_linger(stream, mapping.address, value);
    MUST(cuMemFree(other));
  };
  if (leads) {
    write_slowly(4712);  // Before anything is shared.
    wire.send_descriptor(memory.exported());
  } else {
    EXPECT(Device::read(mapping.address) == 4712);
  }
  partner.meet();
  std::vector<unsigned> values(bytes / 4);
  for (unsigned round = 1; round <= kRounds; ++round) {
    const bool frees = round % 6 < 2;
    if ((round % 2 == 1) != leads) {
      partner.meet();
      EXPECT(Device::read(mapping.address) == round);
      if (!frees) EXPECT(Device::read(mapping.address + bytes - 4) == round);
      partner.meet();
      continue;
    }
    if (frees) {
      write_slowly(round);
    } else {
      for (unsigned& value : values) value = round;
      MUST(cuMemcpyHtoD(mapping.address, values.data(), bytes));
    }
    partner.meet();
    partner.meet();
  }
}

// Each turn's memory is gone at its end, or the device would be full. Descriptors of ours, places
// in the exchange and handles come back, too.
void come_and_go(bool forwarded) {
  constexpr size_t kMost = 200 * kMiB;  // Of 301 MiB.
  for (int turn = 0; turn < 20; ++turn) {
    Allocation memory(kMost);
    const int descriptor = memory.exported(), copy = dup(descriptor);
    memory.release();
    close(descriptor);
    CUmemGenericAllocationHandle more = 0;
    // The emulated device itself counts only what its own process holds.
    if (forwarded) EXPECT(shareable::create_into(&more, kMost) == CUDA_ERROR_OUT_OF_MEMORY);
    {
      const Allocation again = Allocation::imported(copy);
      const Mapping mapping(again, kMost);
      write_ends(mapping.address, kMost, 3);
    }
    close(copy);
  }
  const Allocation one(2 * kMiB);
  for (int turn = 0; turn < 6000; ++turn) close(one.exported());
  const Mapping mapping(one, 2 * kMiB);
  write_ends(mapping.address, 2 * kMiB, 9);
}

// The exporter dies. Imported memory lives on. Its open descriptor names nothing any more.
void outlive(const char* program, const char* image) {
  Wire wire = Wire::make();
  const Partner maker = Partner::start(program, {image, "maker", wire.word()});
  const Device device(image);
  const int descriptor = wire.receive_descriptor();
  const Allocation memory = Allocation::imported(descriptor);
  const Mapping mapping(memory, 2 * kMiB);
  maker.meet();
  maker.end(SIGKILL);
  EXPECT(ends_are(mapping.address, 2 * kMiB, 50));
  // The worker ends some time after its client.
  CUresult result = CUDA_SUCCESS;
  for (int turn = 0; turn < 2000 && result == CUDA_SUCCESS; ++turn) {
    CUmemGenericAllocationHandle late = 0;
    result = shareable::import_into(&late, descriptor);
    if (result == CUDA_SUCCESS) MUST(cuMemRelease(late));
    usleep(5'000);
  }
  EXPECT(result == CUDA_ERROR_INVALID_VALUE);
  write_ends(mapping.address, 2 * kMiB, 60);
  EXPECT(ends_are(mapping.address, 2 * kMiB, 60));
}

void make_and_stay(const Partner& leader, const Wire& wire, const char* image) {
  const Device device(image);
  const Allocation memory(2 * kMiB);
  const Mapping mapping(memory, 2 * kMiB);
  write_ends(mapping.address, 2 * kMiB, 50);
  wire.send_descriptor(memory.exported());
  leader.meet();
  pause();
}

CUmemoryPool new_pool(CUmemAllocationHandleType type) {
  CUmemPoolProps properties = {};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.handleTypes = type;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUmemoryPool pool = nullptr;
  MUST(cuMemPoolCreate(&pool, &properties));
  return pool;
}
CUresult import_pool(CUmemoryPool* pool, int descriptor) {
  return cuMemPoolImportFromShareableHandle(
      pool, reinterpret_cast<void*>(static_cast<intptr_t>(descriptor)), shareable::kDescriptor, 0);
}

void wrong_pool_calls(CUmemoryPool shared, int descriptor) {
  int supported = 0, out = -1;
  MUST(cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES, 0));
  EXPECT(supported == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  const CUmemoryPool own = new_pool(CU_MEM_HANDLE_TYPE_NONE);
  MUST_BE(CUDA_ERROR_INVALID_VALUE,
          cuMemPoolExportToShareableHandle(&out, own, shareable::kDescriptor, 0));
  MUST_BE(CUDA_ERROR_INVALID_VALUE,
          cuMemPoolExportToShareableHandle(&out, shared, shareable::kDescriptor, 1));
  MUST_BE(CUDA_ERROR_INVALID_VALUE,
          cuMemPoolExportToShareableHandle(nullptr, shared, shareable::kDescriptor, 0));
  MUST_BE(CUDA_ERROR_NOT_SUPPORTED,
          cuMemPoolExportToShareableHandle(&out, shared, CU_MEM_HANDLE_TYPE_FABRIC, 0));
  EXPECT(out == -1);
  CUdeviceptr memory = 0;
  MUST(cuMemAllocFromPoolAsync(&memory, 4096, own, nullptr));
  CUmemPoolPtrExportData data = {};
  MUST_BE(CUDA_ERROR_INVALID_VALUE, cuMemPoolExportPointer(&data, memory));
  MUST_BE(CUDA_ERROR_INVALID_VALUE, cuMemPoolExportPointer(&data, 4096));
  MUST(cuMemFreeAsync(memory, nullptr));
  MUST(cuMemPoolDestroy(own));
  CUmemoryPool none = nullptr;
  const int nothing = open("/dev/null", O_RDWR);
  for (const int wrong : {-1, 1 << 20, nothing}) {
    MUST_BE(CUDA_ERROR_INVALID_VALUE, import_pool(&none, wrong));
  }
  close(nothing);
  EXPECT(none == nullptr);
  refuse_descriptor(descriptor);  // It is no allocation's.
}

constexpr size_t kPoolSizes[] = {4096, 100'000, 8 * kMiB};

void share_pool(const Partner& partner, const Wire& wire) {
  const CUmemoryPool pool = new_pool(shareable::kDescriptor);
  int descriptor = -1;
  MUST(cuMemPoolExportToShareableHandle(&descriptor, pool, shareable::kDescriptor, 0));
  wrong_pool_calls(pool, descriptor);
  wire.send_descriptor(descriptor);
  close(descriptor);
  const CUstream stream = Device::stream(CU_STREAM_NON_BLOCKING);
  CUdeviceptr memory[std::size(kPoolSizes)];
  for (size_t i = 0; i < std::size(kPoolSizes); ++i) {
    MUST(cuMemAllocFromPoolAsync(&memory[i], kPoolSizes[i], pool, stream));
    MUST(cuStreamSynchronize(stream));
    write_ends(memory[i], kPoolSizes[i], 500);
    CUmemPoolPtrExportData data = {};
    MUST(cuMemPoolExportPointer(&data, memory[i]));
    partner.tell(data);
    partner.meet();
    EXPECT(ends_are(memory[i], kPoolSizes[i], 510));
  }
  partner.meet();  // The partner has freed its mappings.
  for (const CUdeviceptr each : memory) MUST(cuMemFreeAsync(each, stream));
  MUST(cuStreamSynchronize(stream));
  MUST(cuMemPoolDestroy(pool));
}

void use_pool(const Partner& partner, const Wire& wire) {
  CUmemoryPool pool = nullptr;
  const int descriptor = wire.receive_descriptor();
  MUST(import_pool(&pool, descriptor));
  close(descriptor);
  const CUstream stream = Device::stream(CU_STREAM_NON_BLOCKING);
  CUdeviceptr memory[std::size(kPoolSizes)], none = 0;
  MUST_BE(CUDA_ERROR_INVALID_VALUE, cuMemAllocFromPoolAsync(&none, 4096, pool, stream));
  for (size_t i = 0; i < std::size(kPoolSizes); ++i) {
    auto data = partner.hear<CUmemPoolPtrExportData>();
    MUST(cuMemPoolImportPointer(&memory[i], pool, &data));
    CUdeviceptr base = 0;
    size_t bytes = 0;
    MUST(cuMemGetAddressRange(&base, &bytes, memory[i] + 100));
    EXPECT(base == memory[i] && bytes == kPoolSizes[i]);
    EXPECT(ends_are(memory[i], kPoolSizes[i], 500));
    write_ends(memory[i], kPoolSizes[i], 510);
    data.reserved[20] ^= 1;
    MUST_BE(CUDA_ERROR_INVALID_VALUE, cuMemPoolImportPointer(&none, pool, &data));
    std::memset(&data, 0x5a, sizeof data);
    MUST_BE(CUDA_ERROR_INVALID_VALUE, cuMemPoolImportPointer(&none, pool, &data));
    partner.meet();
  }
  MUST(cuMemFree(memory[0]));
  for (size_t i = 1; i < std::size(kPoolSizes); ++i) MUST(cuMemFreeAsync(memory[i], stream));
  MUST(cuStreamSynchronize(stream));
  MUST_BE(CUDA_ERROR_INVALID_VALUE, cuMemFree(memory[0]));
  MUST(cuMemPoolDestroy(pool));
  partner.meet();
}

// Each device's memory has the number that the importing program gives the device.
void lead_visible(const char* program, const char* image) {
  Wire wire = Wire::make();
  setenv("CUDA_VISIBLE_DEVICES", "1", 1);
  const Partner one = Partner::start(program, {image, "one", wire.word()});
  unsetenv("CUDA_VISIBLE_DEVICES");
  for (const int ordinal : {0, 1}) {
    const Device device(image, ordinal);
    const Allocation memory(2 * kMiB, shareable::kDescriptor, ordinal);
    check_properties(memory, ordinal);
    const Mapping mapping(memory, 2 * kMiB, ordinal);
    write_ends(mapping.address, 2 * kMiB, 70);
    const int descriptor = memory.exported();
    wire.send_descriptor(descriptor);
    close(descriptor);
    one.meet();
    EXPECT(ends_are(mapping.address, 2 * kMiB, ordinal == 1 ? 80 : 70));
  }
  one.end();
}

// Only the second device is visible here, as the first.
void see_one(const Partner& leader, const Wire& wire, const char* image) {
  const Device device(image);
  CUmemGenericAllocationHandle hidden = 0;
  MUST_BE(CUDA_ERROR_INVALID_DEVICE, shareable::import_into(&hidden, wire.receive_descriptor()));
  EXPECT(hidden == 0);
  leader.meet();
  const Allocation memory = Allocation::imported(wire.receive_descriptor());
  check_properties(memory, 0);
  const Mapping mapping(memory, 2 * kMiB);
  EXPECT(ends_are(mapping.address, 2 * kMiB, 70));
  write_ends(mapping.address, 2 * kMiB, 80);
  leader.meet();
}

// A server that shares nothing by descriptors. NCCL makes such memory without exporting it.
void refused() {
  int supported = -1;
  MUST(cuDeviceGetAttribute(&supported,
                            CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 0));
  EXPECT(supported == 0);
  const Allocation memory(2 * kMiB);
  const Mapping mapping(memory, 2 * kMiB);
  int descriptor = -1;
  MUST_BE(CUDA_ERROR_NOT_SUPPORTED,
          cuMemExportToShareableHandle(&descriptor, memory.handle, shareable::kDescriptor, 0));
  CUmemGenericAllocationHandle imported = 0;
  MUST_BE(CUDA_ERROR_NOT_SUPPORTED, shareable::import_into(&imported, 0));
}

// Gives a descriptor to another program, which may belong to another run.
void give(const char* path) {
  const Allocation memory(2 * kMiB);
  const Mapping mapping(memory, 2 * kMiB);
  write_ends(mapping.address, 2 * kMiB, 4711);
  const Wire wire = Wire::listen_at(path);
  wire.send_descriptor(memory.exported());
  wire.await_end();
}

void take(const char* path) {
  const Wire wire = Wire::connect_to(path);
  CUmemGenericAllocationHandle handle = 0;
  const CUresult result = shareable::import_into(&handle, wire.receive_descriptor());
  if (result != CUDA_SUCCESS) {
    std::printf("%s\n", cuda_check::name_of(result));
    return;
  }
  const Allocation memory = Allocation::of(handle);
  const Mapping mapping(memory, 2 * kMiB);
  std::printf("%s\n", ends_are(mapping.address, 2 * kMiB, 4711) ? "found it" : "found something");
}

int lead(const char* program, const char* image, const std::string& what) {
  if (what == "many" || what == "many-forwarded") {
    const Device device(image);
    come_and_go(what == "many-forwarded");
  } else if (what == "death") {
    outlive(program, image);
  } else if (what == "visible") {
    lead_visible(program, image);
  } else if (what == "refused") {
    const Device device(image);
    refused();
  } else if (what == "inherit") {
    const Device device(image);
    check_attribute();
    const Allocation memory(2 * kMiB);
    const int inherited = memory.exported();
    const Partner partner = Partner::start(program, {image, what, "-1"});
    lend_descriptors(partner, memory, inherited);
    partner.end();
  } else {
    Wire wire = Wire::make();
    const Partner partner = Partner::start(program, {image, what, wire.word()});
    const Device device(image);
    if (what == "memory") share_memory(partner, wire);
    if (what == "pool") share_pool(partner, wire);
    if (what == "early") answered_early(partner, wire, device, true);
    partner.end();
  }
  std::printf("PASSED\n");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  EXPECT(argc == 3 || argc == 4 || argc == 6);
  const char* const image = argv[1];
  const std::string what = argv[2];
  end_after(100);
  if (argc == 3) return lead(argv[0], image, what);
  if (argc == 4) {
    const Device device(image);
    what == "give" ? give(argv[3]) : take(argv[3]);
    return 0;
  }
  const Wire wire(std::atoi(argv[3]));
  const Partner leader(std::atoi(argv[4]), std::atoi(argv[5]));
  if (what == "maker") make_and_stay(leader, wire, image);
  if (what == "one") {
    see_one(leader, wire, image);
    return 0;
  }
  const Device device(image);
  if (what == "memory") use_memory(leader, wire, device);
  if (what == "pool") use_pool(leader, wire);
  if (what == "early") answered_early(leader, wire, device, false);
  if (what == "inherit") borrow_descriptors(leader);
  return 0;
}
