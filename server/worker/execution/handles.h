// HandleTable: the driver's value behind each handle that the client minted.
//
// A peer may send anything, so every lookup checks kind and life. Nothing here is a raw pointer
// that the client chose, and no driver pointer leaves the worker. Entries are found by the whole
// value, so that a reused index never finds its former owner.
//
// Any thread. An inner mutex guards all, and lookups are short.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "driver_abi/row.h"
#include "protocol/calls/owned_handles.h"
#include "protocol/limits.h"

namespace gpurun::server {

using driver_abi::HandleKind;
// The driver's value as it came, 64 bits wide: a CUstream, CUmodule, ...
using DriverValue = std::uint64_t;

class HandleTable {
 public:
  struct Found {
    int result = 0;         // 0, or the CUresult to return (invalid handle, or the poison).
    DriverValue value = 0;  // Only with result 0.
  };

  // Binds `client_handle` to `value`. CUDA_ERROR_INVALID_HANDLE when the handle is in use or does
  // not have the form of a handle of `kind`. OUT_OF_MEMORY over limits::kHandlesMax.
  // The handle ends with `owner`, unless that is 0.
  int bind(std::uint64_t client_handle, HandleKind kind, DriverValue value,
           std::uint64_t owner = 0);
  // Its creation failed. Lookups return `result` (not 0) until it is erased.
  int poison(std::uint64_t client_handle, HandleKind kind, int result, std::uint64_t owner = 0);

  // driver_abi::wrong_handle_error() for a handle that is unknown or of another kind. The failure
  // of a poisoned handle.
  Found find(std::uint64_t client_handle, HandleKind kind) const;

  // The client's handle of a value that the driver returned (cuEventGet..., cuCtxGetCurrent). 0:
  // unknown.
  std::uint64_t client_handle_of(DriverValue value, HandleKind kind) const;

  // Forgets a poisoned handle, which has no object of the driver. False for any other handle.
  bool forget_poisoned(std::uint64_t client_handle, HandleKind kind);

  // `client_handle`, if it is known, ends with `owner` from now on.
  void give(std::uint64_t client_handle, std::uint64_t owner);
  // The handle that this one ends with. 0: none.
  std::uint64_t owner_of(std::uint64_t client_handle) const;
  // Forgets all handles that end with `owner`, at any depth. Returns the driver's values of graphs
  // among them.
  std::vector<DriverValue> end_owned(std::uint64_t owner);

  // Forgets the handle, and all that end with it. Returns its value as find() does.
  Found erase(std::uint64_t client_handle, HandleKind kind);

  // The driver has returned the same value once more and counts its owners (allocations:
  // cuMemRetainAllocationHandle). The handle needs one more release() before it is forgotten.
  void retain(std::uint64_t client_handle);
  // As erase(), but only the last owner erases.
  void release(std::uint64_t client_handle, HandleKind kind);

  std::size_t size() const;

 private:
  struct Entry {
    HandleKind kind = HandleKind::kNone;
    int failure = 0;
    DriverValue value = 0;
    std::uint32_t retained = 0;  // References besides the first.
    std::uint64_t owner = 0;
  };
  struct ReverseHash {
    std::size_t operator()(const std::pair<DriverValue, HandleKind>& key) const noexcept {
      return std::hash<std::uint64_t>()(key.first * 31 + static_cast<std::uint64_t>(key.second));
    }
  };

  int insert(std::uint64_t client_handle, const Entry& entry);
  void own(std::uint64_t owner, std::uint64_t member);  // With mutex_ held.
  // With mutex_ held. False: it is not known.
  bool forget(std::uint64_t client_handle);
  std::vector<DriverValue> forget_owned(std::uint64_t owner);

  mutable std::mutex mutex_;
  std::unordered_map<std::uint64_t, Entry> entries_;
  std::unordered_map<std::pair<DriverValue, HandleKind>, std::uint64_t, ReverseHash> reverse_;
  protocol::OwnedHandles owned_;
};

}  // namespace gpurun::server
