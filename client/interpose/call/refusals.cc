// Refusals: the log line of each refused function, once, with the reason.
#include "client/interpose/call/refusals.h"

#include <array>
#include <atomic>
#include <string>

#include "base/log.h"
#include "driver_abi/opcodes.h"
#include "protocol/limits.h"

namespace gpurun::client::interpose {
namespace {

using driver_abi::Row;

// One log line for each function, by a bit for each opcode. Returns true the first time.
bool first_refusal(const Row& row) {
  static std::array<std::atomic<bool>, limits::kRowsMax> said;
  return row.opcode < said.size() && !said[row.opcode].exchange(true, std::memory_order_relaxed);
}

CUresult refuse(const Row& row, const char* reason) {
  if (first_refusal(row)) GPURUN_LOG(kWarning, "%s is not supported: %s", row.symbol, reason);
  return CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace

CUresult call_refused(const Row& row) noexcept {
  return refuse(row, row.reason == nullptr ? "no reason given" : row.reason);
}

CUresult refuse_part(const Row& row, const char* reason) noexcept { return refuse(row, reason); }

CUresult refuse_managed_variable(const char* name, const char* reason) noexcept {
  if (first_refusal(*driver_abi::find_row(driver_abi::opcode::cuLibraryGetManaged))) {
    GPURUN_LOG(
        kWarning,
        "__managed__ variable %.200s is not supported: %s. Kernels have it for themselves; the "
        "program ends with a segmentation fault where its host code reads or writes it",
        name, reason);
  } else {
    GPURUN_LOG(kInfo, "__managed__ variable %.200s is not supported either: %s", name, reason);
  }
  return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult refuse_managed_memory(const Row& row) noexcept {
  return refuse(row,
                "GPURUN_HOST_MEMORY=copy forbids managed memory, or the server's gpurun is too old "
                "for it");
}

CUresult call_not_yet(const Row& row) noexcept {
  return refuse(row, "this version of gpurun does not forward it yet");
}

CUresult call_lacking(const Row& row) noexcept {
  const Process* process = connected_already();
  // As refuse_managed_variable() says, without the name.
  const bool managed = row.opcode == driver_abi::opcode::cuLibraryGetManaged;
  const char* const end = managed ? ". The program ends with a segmentation fault where its host "
                                    "code reads or writes a __managed__ variable"
                                  : "";
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
    return refuse(row, (reason + end).c_str());
  } catch (...) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
}

}  // namespace gpurun::client::interpose
