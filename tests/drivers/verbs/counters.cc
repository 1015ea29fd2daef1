// Counters of the verbs double: in memory, or in a file that processes share.
#include "tests/drivers/verbs/counters.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

namespace gpurun::verbs_double {
namespace {

verbs_double_counts* shared_file() {
  const char* path = std::getenv("VERBS_DOUBLE_COUNTERS");
  if (path == nullptr || *path == '\0') return nullptr;
  const int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (file < 0) return nullptr;
  void* place = MAP_FAILED;
  if (ftruncate(file, sizeof(verbs_double_counts)) == 0) {
    place = mmap(nullptr, sizeof(verbs_double_counts), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  }
  close(file);
  return place == MAP_FAILED ? nullptr : static_cast<verbs_double_counts*>(place);
}

verbs_double_counts& counts() {
  static verbs_double_counts own{};
  static verbs_double_counts* const all = [] {
    verbs_double_counts* shared = shared_file();
    return shared == nullptr ? &own : shared;
  }();
  return *all;
}

}  // namespace

void count(std::uint64_t verbs_double_counts::*which, std::uint64_t amount) noexcept {
  std::atomic_ref(counts().*which).fetch_add(amount, std::memory_order_relaxed);
}

}  // namespace gpurun::verbs_double

void verbs_double_counters(verbs_double_counts* out) {
  auto* fields = reinterpret_cast<std::uint64_t*>(&gpurun::verbs_double::counts());
  auto* copies = reinterpret_cast<std::uint64_t*>(out);
  for (std::size_t i = 0; i < sizeof(*out) / sizeof(std::uint64_t); ++i) {
    copies[i] = std::atomic_ref(fields[i]).load(std::memory_order_relaxed);
  }
}
