// The worker's side of handles: what each client-minted value stands for in the driver.
//
// A peer may send anything: every lookup checks kind and life. Nothing here is a raw pointer that
// the client chose, and no driver pointer leaves the worker. Entries are found by the whole value,
// so that an index which the client has used again never meets its former owner.
//
// Any thread (guarded by an inner mutex; lookups are short).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "driver_abi/row.h"
#include "protocol/limits.h"

namespace gpurun::server {

using driver_abi::HandleKind;
// The driver's value: a CUstream, CUmodule, ... as it came, 64 bits wide.
using DriverValue = std::uint64_t;

class HandleTable {
 public:
  struct Found {
    int result = 0;         // 0, or the CUresult to give back (invalid handle, or the poison).
    DriverValue value = 0;  // Only with result 0.
  };

  // Makes `client_handle` stand for `value`. CUDA_ERROR_INVALID_HANDLE when it is in use or is not
  // of the form of a handle of `kind`; OUT_OF_MEMORY over limits::kHandlesMax.
  int bind(std::uint64_t client_handle, HandleKind kind, DriverValue value);
  // Its creation failed: lookups return `result` (not 0) until it is erased.
  int poison(std::uint64_t client_handle, HandleKind kind, int result);

  // 400 INVALID_HANDLE (201 INVALID_CONTEXT for contexts) for what is unknown or of another kind;
  // the failure of a poisoned one.
  Found find(std::uint64_t client_handle, HandleKind kind) const;

  // The client's value for what the driver returned (cuEventGet..., cuCtxGetCurrent); 0: unknown.
  std::uint64_t client_handle_of(DriverValue value, HandleKind kind) const;

  // Forgets a poisoned handle, which nothing of the driver's stands behind. False for any other.
  bool forget_poisoned(std::uint64_t client_handle, HandleKind kind);

  // Forgets it; returns what it stood for as find() does.
  Found erase(std::uint64_t client_handle, HandleKind kind);

  // The driver returned it once more, and counts: so many more calls of release() until it is
  // forgotten (allocations: cuMemRetainAllocationHandle).
  void retain(std::uint64_t client_handle);
  // erase(), for the last owner.
  void release(std::uint64_t client_handle, HandleKind kind);

  std::size_t size() const;

 private:
  struct Entry {
    HandleKind kind = HandleKind::kNone;
    int failure = 0;
    DriverValue value = 0;
    std::uint32_t retained = 0;  // Owners beside the first.
  };
  struct ReverseHash {
    std::size_t operator()(const std::pair<DriverValue, HandleKind>& key) const noexcept {
      return std::hash<std::uint64_t>()(key.first * 31 + static_cast<std::uint64_t>(key.second));
    }
  };

  int insert(std::uint64_t client_handle, const Entry& entry);

  mutable std::mutex mutex_;
  std::unordered_map<std::uint64_t, Entry> entries_;
  std::unordered_map<std::pair<DriverValue, HandleKind>, std::uint64_t, ReverseHash> reverse_;
};

}  // namespace gpurun::server
