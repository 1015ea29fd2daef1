// Arguments: values for a call, drawn from each parameter's valid domain. Sizes are small and all
// different, handles are live, and every byte of a buffer shows where it should go.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "driver_abi/row.h"

namespace gpurun::parity {

// The length of every array of handles.
inline constexpr std::size_t kHandlesInArray = 64;

inline constexpr std::size_t kBufferBytes = 4096;  // For each pointer, far more than any row needs.
inline constexpr unsigned char kUntouched = 0xee;  // The contents of outputs before the call.

// Whether this parameter is the count of another one.
bool is_a_count(const driver_abi::Row& row, std::size_t index);

class Arguments {
 public:
  // `handle(kind, n)` gives the n-th live handle of a kind.
  using HandleSource = std::function<std::uint64_t(driver_abi::HandleKind, std::size_t)>;
  Arguments(const driver_abi::Row& row, const HandleSource& handle);

  void* const* get() const { return pointers_.data(); }
  std::size_t size() const { return pointers_.size(); }
  // The target of parameter `index`.
  unsigned char* buffer(std::size_t index) const { return buffers_[index].get(); }
  // Whether the call wrote there.
  bool is_changed(std::size_t index) const;
  // Passes NULL for a pointer, or a value for a handle.
  void replace(std::size_t index, std::uint64_t value);

 private:
  void make(const driver_abi::Row& row, std::size_t index, const HandleSource& handle);

  std::vector<std::unique_ptr<unsigned char[]>> storage_;  // The argument itself.
  std::vector<std::unique_ptr<unsigned char[]>> buffers_;  // Its target.
  std::vector<std::vector<unsigned char>> drawn_;          // The targets before the call.
  std::vector<void*> pointers_;
};

}  // namespace gpurun::parity
