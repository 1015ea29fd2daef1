// Entry: the work around each intercepted call: refusals, counting, and the returned error.
#include "client/interpose/entry.h"

#include <array>
#include <atomic>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <utility>

#include "base/log.h"
#include "base/planted_flaw.h"
#include "base/published_once.h"
#include "client/interpose/generated_call.h"
#include "client/stats/stats.h"
#include "protocol/limits.h"

namespace gpurun::client::interpose {
namespace {

using driver_abi::Row;
using driver_abi::StreamVariant;

thread_local unsigned t_depth = 0;
thread_local std::uint64_t t_default_stream = protocol::kStreamNull;
thread_local const Row* t_row = nullptr;
thread_local std::uint64_t t_observed_since = 0;  // The start of t_row. 0: nothing counts.

// One log line for each function, by a bit for each opcode. Returns true the first time.
bool first_refusal(const Row& row) {
  static std::array<std::atomic<bool>, limits::kRowsMax> said;
  return row.opcode < said.size() && !said[row.opcode].exchange(true, std::memory_order_relaxed);
}

CUresult refuse(const Row& row, const char* reason) {
  if (first_refusal(row)) GPURUN_LOG(kWarning, "%s is not supported: %s", row.symbol, reason);
  return CUDA_ERROR_NOT_SUPPORTED;
}

// Counts at the end of the call, because the first call of all creates the session that counts.
void end_observed() noexcept {
  const std::uint64_t begin = std::exchange(t_observed_since, 0);
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
  planted_flaw("client");
  static constinit PublishedOnce<bool> counting;
  const bool counts = counting.get(
      [] { return SessionOptions::from_environment().statistics || recording_wanted(); });
  if (counts) t_observed_since = Recorder::now();
}

CallScope::~CallScope() {
  --t_depth;
  if (outermost_ && t_observed_since != 0) end_observed();
}

CUresult result_of_current_exception(const Row& row) noexcept {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  } catch (const std::exception& error) {
    GPURUN_LOG(kError, "%s: %s", row.symbol, error.what());
  } catch (...) {
    GPURUN_LOG(kError, "%s: an unknown exception", row.symbol);
  }
  return CUDA_ERROR_UNKNOWN;
}

CUresult call_generated(const Row& row, void* const* arguments) noexcept {
  return call_custom(
      row, [&row, arguments] { return static_cast<CUresult>(run_generated(row, arguments)); });
}

CUresult call_refused(const Row& row) noexcept {
  return refuse(row, row.reason == nullptr ? "no reason given" : row.reason);
}

CUresult refuse_managed_variable(const Row& row, const char* name) noexcept {
  if (name == nullptr) return call_refused(row);
  if (first_refusal(row)) {
    GPURUN_LOG(
        kWarning,
        "__managed__ variable %.200s is not supported: %s. Kernels have it for themselves; the "
        "program ends with a segmentation fault where its host code reads or writes it",
        name, row.reason);
  } else {
    GPURUN_LOG(kInfo, "__managed__ variable %.200s is not supported either", name);
  }
  return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult call_not_yet(const Row& row) noexcept {
  return refuse(row, "this version of gpurun does not forward it yet");
}

CUresult call_lacking(const Row& row) noexcept {
  const Process* process = connected_already();
  try {
    std::string reason;
    if (server_lacks(row.opcode)) {
      const std::string release = process == nullptr ? std::string() : process->server_release;
      reason = "the server (gpurun " + release + ") does not know it; update the server";
    } else if (process != nullptr && process->devices->emulated()) {
      reason = "the emulated device does not implement it";
    } else {
      const int version = process == nullptr ? 0 : process->driver_version;
      reason = "the server's CUDA driver (" + std::to_string(version / 1000) + "." +
               std::to_string(version % 1000 / 10) + ") lacks it; update that driver";
    }
    return refuse(row, reason.c_str());
  } catch (...) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
}

}  // namespace gpurun::client::interpose
