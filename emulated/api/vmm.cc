// Virtual memory management: address reservations, physical allocations and their mapping. An
// allocation is a memory file, so that it can be mapped at several places and handed to another
// process.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <map>
#include <mutex>

#include "base/memory_file.h"
#include "base/unique_fd.h"
#include "emulated/api/entry.h"
#include "emulated/api/mapped_file.h"
#include "emulated/objects/memory_registry.h"

namespace gpurun::emulated {
namespace {

constexpr std::uint64_t kGranularity = std::uint64_t{2} << 20;

class Allocation final : public Object {
 public:
  static constexpr ObjectKind kKind = ObjectKind::kAllocation;
  Allocation(Device& device, std::uint64_t size, UniqueFd memory, const CUmemAllocationProp& prop,
             bool charged)
      : Object(kKind),
        bytes(size),
        file(std::move(memory)),
        properties(prop),
        device_(device),
        charged_(charged) {}
  ~Allocation() override {
    if (charged_) device_.arena().discharge(bytes);
  }

  const std::uint64_t bytes;
  const UniqueFd file;
  const CUmemAllocationProp properties;
  std::atomic<int> references{1};  // cuMemCreate, cuMemRetainAllocationHandle, imports.

 private:
  Device& device_;
  const bool charged_;
};

using AllocationPtr = std::shared_ptr<Allocation>;

// Reservations by their start, and what is mapped where.
struct AddressSpace {
  struct Mapping {
    std::uint64_t bytes;
    std::uint64_t offset;
    AllocationPtr allocation;
    CUmemAccess_flags access = CU_MEM_ACCESS_FLAGS_PROT_NONE;
  };
  std::mutex mutex;
  std::map<std::uint64_t, std::uint64_t> reservations;
  std::map<std::uint64_t, Mapping> mappings;

  bool inside_reservation(std::uint64_t address, std::uint64_t bytes) const {
    auto after = reservations.upper_bound(address);
    if (after == reservations.begin()) return false;
    const auto& [base, length] = *std::prev(after);
    return address - base <= length && bytes <= length - (address - base);
  }
  bool overlaps_mapping(std::uint64_t address, std::uint64_t bytes) const {
    auto after = mappings.lower_bound(address);
    if (after != mappings.end() && after->first < address + bytes) return true;
    return after != mappings.begin() &&
           std::prev(after)->first + std::prev(after)->second.bytes > address;
  }
};

AddressSpace& address_space() {
  static AddressSpace* space = new AddressSpace;
  return *space;
}

void* at(std::uint64_t address) { return reinterpret_cast<void*>(address); }

bool is_granular(std::uint64_t value) { return value % kGranularity == 0; }

CUresult check_properties(const CUmemAllocationProp* prop, Device** device) {
  if (prop == nullptr || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // Beyond the last value of the enumeration.
  if (static_cast<unsigned>(prop->location.type) > CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // Host allocations depend on attributes that this device reports as 0.
  if (prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
  constexpr unsigned kKnown = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  if ((prop->requestedHandleTypes & ~kKnown) != 0) return CUDA_ERROR_NOT_SUPPORTED;
  *device = device_at(prop->location.id);
  return *device == nullptr ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

// Data after an allocation's bytes in its file, for processes that import it.
struct Trailer {
  static constexpr std::uint64_t kBytes = 4096;
  static constexpr std::uint64_t kMagic = 0x6c61636973796870;
  std::uint64_t magic = kMagic;
  std::uint64_t physical = 0;  // The device's index before CUDA_VISIBLE_DEVICES.
};

// Not valid: there is no memory.
UniqueFd make_file(const Device& device, std::uint64_t bytes) {
  Result<UniqueFd> file = create_sealable_memory_file("gpurun-device-memory");
  const Trailer trailer{Trailer::kMagic, static_cast<std::uint64_t>(device.physical())};
  if (!file.ok() || ftruncate(file->get(), static_cast<off_t>(bytes + Trailer::kBytes)) != 0 ||
      pwrite(file->get(), &trailer, sizeof trailer, static_cast<off_t>(bytes)) != sizeof trailer ||
      fcntl(file->get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return UniqueFd();
  }
  return *std::move(file);
}

// The device and the size of the allocation in `file`. INVALID_VALUE: the file is not an
// allocation, or its memory could be removed from under our mapping. INVALID_DEVICE: its device is
// not visible here.
CUresult read_file(int file, Device** device, std::uint64_t* bytes) {
  struct stat status {};
  constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW;
  if (fstat(file, &status) != 0 || !S_ISREG(status.st_mode) ||
      (fcntl(file, F_GET_SEALS) & kSeals) != kSeals) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const auto size = static_cast<std::uint64_t>(status.st_size);
  if (size <= Trailer::kBytes || !is_granular(size - Trailer::kBytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *bytes = size - Trailer::kBytes;
  Trailer trailer{};
  if (pread(file, &trailer, sizeof trailer, static_cast<off_t>(*bytes)) != sizeof trailer ||
      trailer.magic != Trailer::kMagic) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (const auto& each : devices()) {
    if (static_cast<std::uint64_t>(each->physical()) == trailer.physical) *device = each.get();
  }
  return *device == nullptr ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

// Maps nothing at [address, address + bytes), keeping the addresses reserved.
bool map_nothing(std::uint64_t address, std::uint64_t bytes) {
  return mmap(at(address), bytes, PROT_NONE,
              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) != MAP_FAILED;
}

}  // namespace

int mapped_file(const MemoryRange& range) {
  AddressSpace& space = address_space();
  const std::lock_guard lock(space.mutex);
  const auto mapping = space.mappings.find(range.base);
  return mapping == space.mappings.end() ? -1 : mapping->second.allocation->file.get();
}

}  // namespace gpurun::emulated

namespace gpurun::emulated::api {

CUresult cuMemGetAllocationGranularity(size_t* granularity, const CUmemAllocationProp* prop,
                                       CUmemAllocationGranularity_flags option) {
  GPURUN_ENTER_DRIVER();
  Device* device = nullptr;
  if (granularity == nullptr || (option != CU_MEM_ALLOC_GRANULARITY_MINIMUM &&
                                 option != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // Host memory has a granularity, too, although none can be made. NCCL asks first, and takes an
  // error for an answer.
  const CUresult wrong = check_properties(prop, &device);
  if (wrong != CUDA_SUCCESS && wrong != CUDA_ERROR_NOT_SUPPORTED) return wrong;
  *granularity = kGranularity;
  return CUDA_SUCCESS;
}

// `address` is a wish (manual, cuMemAddressReserve). If it cannot be had, the result is elsewhere.
CUresult cuMemAddressReserve(CUdeviceptr* out, size_t bytes, size_t alignment, CUdeviceptr address,
                             unsigned long long flags) {
  GPURUN_ENTER_DRIVER();
  if (out == nullptr || bytes == 0 || !is_granular(bytes) || !is_granular(address) || flags != 0 ||
      (alignment & (alignment - 1)) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  alignment = std::max<std::size_t>(alignment, kGranularity);
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  std::uint64_t base = 0;
  if (address != 0 && address % alignment == 0) {
    // A wish to the kernel too. MAP_FIXED_NOREPLACE would be wrong: ThreadSanitizer drops a wish
    // for an address that it cannot watch, but not that flag, and page 0 would be mapped.
    void* wished = mmap(at(address), bytes, PROT_NONE, kFlags, -1, 0);
    if (wished == at(address)) {
      base = address;
    } else if (wished != MAP_FAILED) {
      munmap(wished, bytes);
    }
  }
  if (base == 0) {
    if (bytes + alignment < bytes) return CUDA_ERROR_OUT_OF_MEMORY;
    void* wide = mmap(nullptr, bytes + alignment, PROT_NONE, kFlags, -1, 0);
    if (wide == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    const auto start = reinterpret_cast<std::uint64_t>(wide);
    base = (start + alignment - 1) / alignment * alignment;
    if (base > start) munmap(wide, base - start);
    const std::uint64_t rest = start + alignment - base;
    if (rest > 0) munmap(at(base + bytes), rest);
  }
  AddressSpace& space = address_space();
  const std::lock_guard lock(space.mutex);
  space.reservations[base] = bytes;
  memory_registry().add_device_addresses(base, bytes);
  *out = base;
  return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes) {
  GPURUN_ENTER_DRIVER();
  AddressSpace& space = address_space();
  const std::lock_guard lock(space.mutex);
  const auto found = space.reservations.find(address);
  if (found == space.reservations.end() || found->second != bytes ||
      space.overlaps_mapping(address, bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  memory_registry().remove_device_addresses(address);
  munmap(at(address), bytes);
  space.reservations.erase(found);
  return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* out, size_t bytes,
                     const CUmemAllocationProp* prop, unsigned long long flags) {
  GPURUN_ENTER_DRIVER();
  Device* device = nullptr;
  if (out == nullptr || bytes == 0 || !is_granular(bytes) || flags != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  GPURUN_TRY(check_properties(prop, &device));
  if (!device->arena().charge(bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  UniqueFd file = make_file(*device, bytes);
  if (!file.valid()) {
    device->arena().discharge(bytes);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  const auto allocation =
      handles().add(std::make_shared<Allocation>(*device, bytes, std::move(file), *prop, true));
  *out = allocation->handle();
  return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  GPURUN_ENTER_DRIVER();
  const auto allocation = handles().find<Allocation>(handle);
  if (allocation == nullptr) return CUDA_ERROR_INVALID_VALUE;
  // Mappings keep the memory.
  if (allocation->references.fetch_sub(1) == 1) handles().remove<Allocation>(handle);
  return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset,
                  CUmemGenericAllocationHandle handle, unsigned long long flags) {
  GPURUN_ENTER_DRIVER();
  const auto allocation = handles().find<Allocation>(handle);
  if (allocation == nullptr || bytes == 0 || !is_granular(bytes) || !is_granular(address) ||
      offset != 0 || flags != 0 || bytes > allocation->bytes) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  AddressSpace& space = address_space();
  const std::lock_guard lock(space.mutex);
  if (!space.inside_reservation(address, bytes) || space.overlaps_mapping(address, bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (mmap(at(address), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, allocation->file.get(), 0) ==
      MAP_FAILED) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  MemoryRange range;
  range.base = address;
  range.bytes = bytes;
  range.kind = MemoryKind::kMapped;
  range.device = allocation->properties.location.id;
  range.owner_handle = handle;
  range.accessible = false;
  memory_registry().add(range);
  space.mappings[address] = {bytes, 0, allocation};
  return CUDA_SUCCESS;
}

CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) {
  GPURUN_ENTER_DRIVER();
  // The caller must have synchronised. Work that is still queued for another context is the
  // caller's responsibility.
  AddressSpace& space = address_space();
  const std::lock_guard lock(space.mutex);
  std::uint64_t reached = address;
  auto first = space.mappings.find(address);
  auto last = first;
  while (last != space.mappings.end() && last->first == reached && reached < address + bytes) {
    reached += last->second.bytes;
    ++last;
  }
  if (bytes == 0 || reached != address + bytes) return CUDA_ERROR_INVALID_VALUE;
  for (auto mapping = first; mapping != last; ++mapping) {
    memory_registry().take(mapping->first, {MemoryKind::kMapped});
  }
  map_nothing(address, bytes);
  space.mappings.erase(first, last);
  return CUDA_SUCCESS;
}

CUresult cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc* descriptions,
                        size_t count) {
  GPURUN_ENTER_DRIVER();
  if (descriptions == nullptr || count == 0 || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  CUmemAccess_flags access = CU_MEM_ACCESS_FLAGS_PROT_NONE;
  for (std::size_t i = 0; i < count; ++i) {
    if (descriptions[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
      return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (device_at(descriptions[i].location.id) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    const CUmemAccess_flags flags = descriptions[i].flags;
    if (flags != CU_MEM_ACCESS_FLAGS_PROT_NONE && flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
        flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    access = std::max(access, descriptions[i].flags);
  }
  AddressSpace& space = address_space();
  const std::lock_guard lock(space.mutex);
  const bool accessible = access != CU_MEM_ACCESS_FLAGS_PROT_NONE;
  if (!memory_registry().set_accessible(address, bytes, accessible)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const int protection = access == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? PROT_READ | PROT_WRITE
                         : accessible                                 ? PROT_READ
                                                                      : PROT_NONE;
  mprotect(at(address), bytes, protection);
  for (auto mapping = space.mappings.find(address);
       mapping != space.mappings.end() && mapping->first < address + bytes; ++mapping) {
    mapping->second.access = access;
  }
  return CUDA_SUCCESS;
}

CUresult cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location,
                        CUdeviceptr address) {
  GPURUN_ENTER_DRIVER();
  if (flags == nullptr || location == nullptr || location->type != CU_MEM_LOCATION_TYPE_DEVICE) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  AddressSpace& space = address_space();
  const std::lock_guard lock(space.mutex);
  auto after = space.mappings.upper_bound(address);
  if (after == space.mappings.begin()) return CUDA_ERROR_INVALID_VALUE;
  --after;
  if (address >= after->first + after->second.bytes) return CUDA_ERROR_INVALID_VALUE;
  *flags = after->second.access;
  return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* prop,
                                                CUmemGenericAllocationHandle handle) {
  GPURUN_ENTER_DRIVER();
  const auto allocation = handles().find<Allocation>(handle);
  if (allocation == nullptr || prop == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *prop = allocation->properties;
  return CUDA_SUCCESS;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* out, void* address) {
  GPURUN_ENTER_DRIVER();
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto range = memory_registry().find(reinterpret_cast<std::uint64_t>(address));
  if (!range || range->kind != MemoryKind::kMapped) return CUDA_ERROR_INVALID_VALUE;
  const auto allocation = handles().find<Allocation>(range->owner_handle);
  if (allocation == nullptr) return CUDA_ERROR_INVALID_VALUE;
  allocation->references.fetch_add(1);
  *out = allocation->handle();
  return CUDA_SUCCESS;
}

CUresult cuMemExportToShareableHandle(void* out, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType type, unsigned long long flags) {
  GPURUN_ENTER_DRIVER();
  const auto allocation = handles().find<Allocation>(handle);
  if (out == nullptr || allocation == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
  if ((allocation->properties.requestedHandleTypes & type) == 0) return CUDA_ERROR_INVALID_VALUE;
  const int copy = dup(allocation->file.get());
  if (copy < 0) return CUDA_ERROR_OUT_OF_MEMORY;
  *static_cast<int*>(out) = copy;
  return CUDA_SUCCESS;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* out, void* os_handle,
                                        CUmemAllocationHandleType type) {
  GPURUN_ENTER_DRIVER();
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
  UniqueFd file(dup(static_cast<int>(reinterpret_cast<std::intptr_t>(os_handle))));
  if (!file.valid()) return CUDA_ERROR_INVALID_VALUE;
  Device* device = nullptr;
  std::uint64_t bytes = 0;
  GPURUN_TRY(read_file(file.get(), &device, &bytes));
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  prop.location.id = device->ordinal();
  const auto allocation =
      handles().add(std::make_shared<Allocation>(*device, bytes, std::move(file), prop, false));
  *out = allocation->handle();
  return CUDA_SUCCESS;
}

}  // namespace gpurun::emulated::api
