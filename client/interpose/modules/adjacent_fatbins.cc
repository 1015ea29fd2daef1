// Neighbours: the wrappers beside a wrapper in its object's data, found by their magic numbers.
#include "client/interpose/modules/adjacent_fatbins.h"

#include <link.h>

#include <cstdint>

#include "driver_abi/image_length.h"

namespace gpurun::client::interpose::modules {
namespace {

struct Wrapper {
  std::uint32_t magic;
  std::uint32_t version;
  std::uintptr_t data;
  std::uintptr_t aux;
};
static_assert(sizeof(Wrapper) == 24);

// The loaded segments of one object.
struct Object {
  struct Range {
    std::uintptr_t start;
    std::uintptr_t end;
    bool holds(std::uintptr_t at, std::size_t bytes) const {
      return at >= start && at < end && bytes <= end - at;
    }
  };
  std::uintptr_t wanted = 0;
  Range home{0, 0};  // The segment that holds `wanted`. Empty: this is not the object.
  std::vector<Range> ranges;

  bool holds(std::uintptr_t at, std::size_t bytes) const {
    for (const Range& range : ranges) {
      if (range.holds(at, bytes)) return true;
    }
    return false;
  }
};

int look_at(dl_phdr_info* info, std::size_t, void* user) {
  Object& object = *static_cast<Object*>(user);
  object.ranges.clear();
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& segment = info->dlpi_phdr[i];
    if (segment.p_type != PT_LOAD || (segment.p_flags & PF_R) == 0) continue;
    const std::uintptr_t start = info->dlpi_addr + segment.p_vaddr;
    const Object::Range range{start, start + segment.p_memsz};
    object.ranges.push_back(range);
    if (range.holds(object.wanted, sizeof(Wrapper))) object.home = range;
  }
  return object.home.end != 0 ? 1 : 0;
}

// Reads beyond a variable, which AddressSanitizer would report. The bytes lie in the segment.
__attribute__((no_sanitize("address"))) Wrapper read_wrapper(std::uintptr_t at) {
  const auto* from = reinterpret_cast<const volatile std::uint32_t*>(at);
  std::uint32_t words[sizeof(Wrapper) / sizeof(std::uint32_t)];
  for (std::size_t i = 0; i < sizeof words / sizeof words[0]; ++i) words[i] = from[i];
  Wrapper wrapper;
  __builtin_memcpy(&wrapper, words, sizeof wrapper);
  return wrapper;
}

bool is_wrapper(const Object& object, std::uintptr_t at) {
  if (!object.home.holds(at, sizeof(Wrapper))) return false;
  const Wrapper wrapper = read_wrapper(at);
  return wrapper.magic == driver_abi::kFatbinWrapperMagic && wrapper.version == 1 &&
         object.holds(wrapper.data, sizeof(std::uint64_t));
}

}  // namespace

std::vector<const void*> adjacent_wrappers(const void* wrapper) {
  Object object;
  object.wanted = reinterpret_cast<std::uintptr_t>(wrapper);
  std::vector<const void*> found;
  if (dl_iterate_phdr(&look_at, &object) != 1 || !is_wrapper(object, object.wanted)) return found;
  std::uintptr_t before = object.wanted, after = object.wanted;
  bool more_before = true, more_after = true;
  while ((more_before || more_after) && found.size() < kAdjacentMax) {
    if (more_after && (more_after = is_wrapper(object, after + sizeof(Wrapper)))) {
      after += sizeof(Wrapper);
      found.push_back(reinterpret_cast<const void*>(after));
    }
    if (more_before && (more_before = is_wrapper(object, before - sizeof(Wrapper)))) {
      before -= sizeof(Wrapper);
      found.push_back(reinterpret_cast<const void*>(before));
    }
  }
  return found;
}

}  // namespace gpurun::client::interpose::modules
