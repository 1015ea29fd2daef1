// injected_fault(): compiled with a sanitizer only.
#include "base/injected_fault.h"

#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <limits>

namespace gpurun {
namespace {

constexpr std::size_t kBytes = 16;

void overflow() {
  volatile std::size_t size = kBytes;  // Volatile: UBSan would otherwise report the overflow first.
  auto* bytes = static_cast<volatile char*>(std::malloc(size));
  if (bytes == nullptr) return;
  bytes[size] = 1;
  std::free(const_cast<char*>(bytes));
}

void* increment(void* number) {
  auto* shared = static_cast<volatile int*>(number);
  *shared = *shared + 1;
  return nullptr;
}

void race() {
  int number = 0;
  pthread_t other;
  if (pthread_create(&other, nullptr, &increment, &number) != 0) return;
  increment(&number);
  pthread_join(other, nullptr);
}

void undefined() {
  volatile int number = std::numeric_limits<int>::max();
  number = number + 1;
}

}  // namespace

void injected_fault(const char* where) noexcept {
  static std::atomic<bool> done{false};
  const char* const wanted = std::getenv("GPURUN_INJECTED_FAULT");
  if (wanted == nullptr || std::strncmp(wanted, where, std::strlen(where)) != 0) return;
  if (done.exchange(true)) return;
  const char* const how = wanted + std::strlen(where);
  if (std::strcmp(how, "-overflow") == 0) overflow();
  if (std::strcmp(how, "-race") == 0) race();
  if (std::strcmp(how, "-undefined") == 0) undefined();
}

}  // namespace gpurun
