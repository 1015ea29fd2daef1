// Memory advice: parts with the same facts, which a call splits at its borders.
#include "driver_abi/state/memory_advice.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

namespace gpurun::driver_abi {
namespace {

std::uint64_t page_of(std::uint64_t address) { return address & ~(MemoryAdvice::kPageBytes - 1); }
std::uint64_t page_behind(std::uint64_t end) { return page_of(end + MemoryAdvice::kPageBytes - 1); }

bool same(const CUmemLocation& left, const CUmemLocation& right) {
  return left.type == right.type && left.id == right.id;
}

// Returns 0, and makes the number of a place on the host the one that is reported.
CUresult check_location(CUmemLocation* location, int devices) {
  switch (location->type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
      return location->id >= 0 && location->id < devices ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
      location->id = 0;
      return CUDA_SUCCESS;
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
      return location->id >= 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

// A location as the attributes without a type report it.
int device_of(const CUmemLocation& location) {
  if (location.type == CU_MEM_LOCATION_TYPE_INVALID) return CU_DEVICE_INVALID;
  return location.type == CU_MEM_LOCATION_TYPE_DEVICE ? location.id : CU_DEVICE_CPU;
}

CUresult put(void* out, std::size_t bytes, int value) {
  if (bytes != sizeof value) return CUDA_ERROR_INVALID_VALUE;
  std::memcpy(out, &value, sizeof value);
  return CUDA_SUCCESS;
}

}  // namespace

void MemoryAdvice::add(std::uint64_t base, std::uint64_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  parts_[base] = Part{base + bytes, base, {}};
}

void MemoryAdvice::remove(std::uint64_t base) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (auto at = parts_.find(base); at != parts_.end() && at->second.base == base;) {
    at = parts_.erase(at);
  }
}

bool MemoryAdvice::holds_locked(std::uint64_t address, std::uint64_t bytes) const {
  if (bytes == 0 || address + bytes < address) return false;
  auto at = parts_.upper_bound(address);
  if (at == parts_.begin()) return false;
  --at;
  const std::uint64_t base = at->second.base;
  for (; at != parts_.end() && at->second.base == base; ++at) {
    if (address + bytes <= at->second.end) return address < at->second.end || bytes == 0;
  }
  return false;
}

bool MemoryAdvice::holds(std::uint64_t address, std::uint64_t bytes) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return holds_locked(address, bytes);
}

// A part begins at `at` afterwards, if a part holds `at`.
MemoryAdvice::Parts::iterator MemoryAdvice::split(std::uint64_t at) {
  auto next = parts_.upper_bound(at);
  if (next == parts_.begin()) return next;
  const auto part = std::prev(next);
  if (part->first == at || part->second.end <= at) return part->first == at ? part : next;
  Part behind = part->second;
  part->second.end = at;
  return parts_.emplace_hint(next, at, std::move(behind));
}

template <typename Change>
void MemoryAdvice::change(std::uint64_t address, std::uint64_t bytes, Change change) {
  const std::uint64_t end = page_behind(address + bytes);
  auto at = split(page_of(address));
  (void)split(end);
  for (; at != parts_.end() && at->first < end; ++at) change(at->second.facts);
}

CUresult MemoryAdvice::advise(std::uint64_t address, std::uint64_t bytes, CUmem_advise advice,
                              CUmemLocation location, int devices) {
  const bool located = advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION ||
                       advice == CU_MEM_ADVISE_SET_ACCESSED_BY ||
                       advice == CU_MEM_ADVISE_UNSET_ACCESSED_BY;
  if (advice < CU_MEM_ADVISE_SET_READ_MOSTLY || advice > CU_MEM_ADVISE_UNSET_ACCESSED_BY) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (located) {
    const CUresult wrong = check_location(&location, devices);
    if (wrong != CUDA_SUCCESS) return wrong;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!holds_locked(address, bytes)) return CUDA_ERROR_INVALID_VALUE;
  change(address, bytes, [&](Facts& facts) {
    auto& by = facts.accessed_by;
    const int device = device_of(location);
    switch (advice) {
      case CU_MEM_ADVISE_SET_READ_MOSTLY:
      case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
        facts.read_mostly = advice == CU_MEM_ADVISE_SET_READ_MOSTLY;
        return;
      case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
        facts.preferred = location;
        return;
      case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
        facts.preferred = {};
        return;
      case CU_MEM_ADVISE_SET_ACCESSED_BY:
        if (std::find(by.begin(), by.end(), device) == by.end()) by.push_back(device);
        return;
      default:
        by.erase(std::remove(by.begin(), by.end(), device), by.end());
    }
  });
  return CUDA_SUCCESS;
}

CUresult MemoryAdvice::prefetch(std::uint64_t address, std::uint64_t bytes, CUmemLocation location,
                                unsigned flags, int devices) {
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  const CUresult wrong = check_location(&location, devices);
  if (wrong != CUDA_SUCCESS) return wrong;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!holds_locked(address, bytes)) return CUDA_ERROR_INVALID_VALUE;
  change(address, bytes, [&](Facts& facts) { facts.prefetched = location; });
  return CUDA_SUCCESS;
}

bool MemoryAdvice::holds_all(const Batch& batch) const {
  if (batch.addresses == nullptr || batch.sizes == nullptr || batch.count == 0 ||
      batch.flags != 0) {
    return false;
  }
  for (std::size_t i = 0; i < batch.count; ++i) {
    if (!holds_locked(batch.addresses[i], batch.sizes[i])) return false;
  }
  return true;
}

CUresult MemoryAdvice::prefetch(const Batch& batch, int devices) {
  if (batch.locations == nullptr || batch.starts == nullptr || batch.location_count == 0 ||
      batch.location_count > batch.count || batch.starts[0] != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (std::size_t i = 0; i < batch.location_count; ++i) {
    if (i != 0 && batch.starts[i] <= batch.starts[i - 1]) return CUDA_ERROR_INVALID_VALUE;
    CUmemLocation location = batch.locations[i];
    const CUresult wrong = check_location(&location, devices);
    if (wrong != CUDA_SUCCESS) return wrong;
  }
  if (batch.starts[batch.location_count - 1] >= batch.count) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!holds_all(batch)) return CUDA_ERROR_INVALID_VALUE;
  std::size_t place = 0;
  for (std::size_t i = 0; i < batch.count; ++i) {
    while (place + 1 < batch.location_count && batch.starts[place + 1] <= i) ++place;
    CUmemLocation location = batch.locations[place];
    (void)check_location(&location, devices);
    change(batch.addresses[i], batch.sizes[i], [&](Facts& facts) { facts.prefetched = location; });
  }
  return CUDA_SUCCESS;
}

CUresult MemoryAdvice::discard(const Batch& batch) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return holds_all(batch) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// Of all parts that the range touches.
std::vector<const MemoryAdvice::Facts*> MemoryAdvice::facts_of(std::uint64_t address,
                                                               std::uint64_t bytes) const {
  std::vector<const Facts*> all;
  for (auto at = std::prev(parts_.upper_bound(address));
       at != parts_.end() && at->first < address + bytes; ++at) {
    all.push_back(&at->second.facts);
  }
  return all;
}

CUresult MemoryAdvice::attribute(void* out, std::size_t out_bytes, CUmem_range_attribute which,
                                 std::uint64_t address, std::uint64_t bytes) const {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!holds_locked(address, bytes)) return CUDA_ERROR_INVALID_VALUE;
  const std::vector<const Facts*> all = facts_of(address, bytes);
  // The location that all pages have, or none.
  const auto common = [&all](CUmemLocation Facts::*of) {
    const CUmemLocation first = all.front()->*of;
    for (const Facts* each : all) {
      if (!same(each->*of, first)) return CUmemLocation{};
    }
    return first;
  };
  switch (which) {
    case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY: {
      const bool mostly =
          std::all_of(all.begin(), all.end(), [](const Facts* each) { return each->read_mostly; });
      return put(out, out_bytes, mostly ? 1 : 0);
    }
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
      return put(out, out_bytes, device_of(common(&Facts::preferred)));
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
      return put(out, out_bytes, device_of(common(&Facts::prefetched)));
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE:
      return put(out, out_bytes, common(&Facts::preferred).type);
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID:
      return put(out, out_bytes, common(&Facts::preferred).id);
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE:
      return put(out, out_bytes, common(&Facts::prefetched).type);
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID:
      return put(out, out_bytes, common(&Facts::prefetched).id);
    case CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY:
      break;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  if (out_bytes == 0 || out_bytes % sizeof(int) != 0) return CUDA_ERROR_INVALID_VALUE;
  std::vector<int> devices(out_bytes / sizeof(int), CU_DEVICE_INVALID);
  std::size_t count = 0;
  for (const int device : all.front()->accessed_by) {
    const bool everywhere = std::all_of(all.begin(), all.end(), [device](const Facts* each) {
      return std::find(each->accessed_by.begin(), each->accessed_by.end(), device) !=
             each->accessed_by.end();
    });
    if (everywhere && count < devices.size()) devices[count++] = device;
  }
  std::memcpy(out, devices.data(), out_bytes);
  return CUDA_SUCCESS;
}

}  // namespace gpurun::driver_abi
