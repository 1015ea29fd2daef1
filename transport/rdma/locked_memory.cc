// Locked memory: facts of proc(5), getrlimit(2) and capabilities(7).
#include "transport/rdma/locked_memory.h"

#include <sys/resource.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <string>

#include "transport/rdma/offer.h"

namespace gpurun::transport::rdma {
namespace {

constexpr unsigned kIpcLock = 14;  // CAP_IPC_LOCK.
// A connection has two rings, and each is mapped and so counted twice (memory.h).
constexpr std::uint64_t kRingsOfConnection = 4;

// The number in the line "name:\t123 kB" of /proc/self/status. 0: no such line.
std::uint64_t number_in(const std::string& status, const std::string& name, int base) {
  std::size_t at = status.find("\n" + name + ":");
  if (at == std::string::npos) return 0;
  at = status.find_first_not_of(" \t", at + name.size() + 2);
  if (at == std::string::npos) return 0;
  std::uint64_t number = 0;
  std::from_chars(status.data() + at, status.data() + status.size(), number, base);
  return number;
}

// The first user namespace maps every user to itself. A capability of another one does not count.
bool in_first_user_namespace(const SystemFiles& files) {
  const std::string map = files.text("/proc/self/uid_map").value_or("");
  std::uint64_t inside = 1, outside = 1, count = 0;
  const char* const end = map.data() + map.size();
  const char* at = map.data();
  for (std::uint64_t* const each : {&inside, &outside, &count}) {
    while (at != end && *at == ' ') ++at;
    at = std::from_chars(at, end, *each).ptr;
  }
  return inside == 0 && outside == 0 && count == 0xffffffff;
}

}  // namespace

std::optional<std::uint64_t> lockable_bytes(const SystemFiles& files) {
  rlimit limit = {};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return std::nullopt;
  }
  // Of this thread, as the capability that the kernel looks at.
  const std::string status = files.text("/proc/thread-self/status").value_or("");
  const std::uint64_t capabilities = number_in(status, "CapEff", 16);
  if ((capabilities >> kIpcLock & 1) != 0 && in_first_user_namespace(files)) return std::nullopt;
  const std::uint64_t pinned = number_in(status, "VmPin", 10) << 10;
  return limit.rlim_cur - std::min<std::uint64_t>(limit.rlim_cur, pinned);
}

std::uint32_t ring_bytes_for(const std::optional<std::uint64_t>& lockable, unsigned connections,
                             const LaterBytes& later) {
  if (!lockable) return kRingBytes;
  const std::uint64_t rings = kRingsOfConnection * std::max(connections, 1U);
  std::uint64_t left = *lockable;
  for (const std::uint64_t part : later) {
    if (left < part + rings * kRingBytesMin) break;
    left -= part;
  }
  const std::uint64_t share = left / rings;
  return static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>(std::bit_floor(share), kRingBytesMin, kRingBytes));
}

}  // namespace gpurun::transport::rdma
