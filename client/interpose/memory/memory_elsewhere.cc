// Memory elsewhere: device memory that this process does not hold. It is the driver's free memory,
// and the memory that other processes return (device_windows.h).
#include <time.h>

#include <atomic>
#include <chrono>

#include "client/interpose/memory/device_windows.h"
#include "client/process/shared_memory_pressure.h"

namespace gpurun::client::interpose {
namespace {

// The time that other processes may take to return unused memory. A process waits for its devices'
// work first if it has freed memory that this work may use.
constexpr std::chrono::seconds kOthersPatience{2};

std::atomic<std::uint64_t> g_returned{0};  // The memory_returns that are done.

}  // namespace

bool others_return_credits(const EntryContext&, Others* stage) {
  SharedMemoryPressure* const board = shared_memory_board.load(std::memory_order_acquire);
  if (board == nullptr) return false;
  const int place = shared_memory_place.load(std::memory_order_acquire);
  if (*stage == Others::kUnasked) {
    *stage = Others::kAsked;
    if (board->ask(place, kOthersPatience)) return true;
  }
  if (!board->some_just_died(place, kOthersPatience)) return false;
  constexpr timespec kBetweenAttempts = {0, 2'000'000};
  nanosleep(&kBetweenAttempts, nullptr);
  return true;
}

int ask_free_bytes(const EntryContext& here, std::size_t* free_bytes, std::size_t* total_bytes) {
  std::uint64_t returns = 0;
  const CallSite site = site_after_returns(here, &returns);
  const int result = call_row(here, opcode::cuMemGetInfo_v2, site, {}, free_bytes, total_bytes);
  if (result == 0) returns_done(returns);
  return result;
}

CallSite site_after_returns(const EntryContext& here, std::uint64_t* returns) noexcept {
  *returns = memory_returns.load(std::memory_order_relaxed);
  const bool all_done = g_returned.load(std::memory_order_relaxed) == *returns;
  return all_done ? here.passing_site() : here.site();
}

void returns_done(std::uint64_t returns) noexcept {
  g_returned.store(returns, std::memory_order_relaxed);
}

}  // namespace gpurun::client::interpose
