// Current call: each thread's row and depth, and the count of calls.
#include "client/interpose/call/current_call.h"

#include <cstdint>
#include <cstring>
#include <utility>

#include "base/injected_fault.h"
#include "base/log.h"
#include "base/published_once.h"
#include "client/interpose/call/process.h"
#include "client/stats/stats.h"

namespace gpurun::client::interpose {
namespace {

using driver_abi::Row;
using driver_abi::StreamVariant;

thread_local unsigned t_depth = 0;
thread_local std::uint64_t t_default_stream = protocol::kStreamNull;
thread_local const Row* t_row = nullptr;
thread_local std::uint64_t t_counted_since = 0;  // The start of t_row. 0: nothing counts.

// Counts at the end of the call, because the first call of all creates the session that counts.
void end_counted_call() noexcept {
  const std::uint64_t begin = std::exchange(t_counted_since, 0);
  const Process* process = connected_already();
  if (process == nullptr) return;
  Stats& stats = process->session->stats();
  stats.count_entry(t_row->alias_opcode);
  if (stats.recorder() == nullptr) return;
  // There is no lane when all lanes are in use.
  if (const Lane* lane = Lane::current(); lane != nullptr) {
    stats.record_entry(lane->id(), t_row->alias_opcode, begin);
  }
}

}  // namespace

CUstream default_stream() noexcept {
  CUstream stream;
  static_assert(sizeof stream == sizeof t_default_stream);
  std::memcpy(&stream, &t_default_stream, sizeof stream);
  return stream;
}

const Row* current_row() noexcept { return t_depth == 0 ? nullptr : t_row; }

CallScope::CallScope(const Row& row) noexcept : outermost_(t_depth++ == 0) {
  if (!outermost_) return;
  t_row = &row;
  t_default_stream =
      row.variant == StreamVariant::kPlain ? protocol::kStreamNull : protocol::kStreamPerThread;
  GPURUN_LOG(kTrace, "%s", row.symbol);
  injected_fault("client");
  static constinit PublishedOnce<bool> counting;
  const bool counts = counting.get(
      [] { return SessionOptions::from_environment().statistics || recording_wanted(); });
  if (counts) t_counted_since = Recorder::now();
}

CallScope::~CallScope() {
  --t_depth;
  if (outermost_ && t_counted_since != 0) end_counted_call();
}

}  // namespace gpurun::client::interpose
