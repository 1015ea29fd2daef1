// Result<T>: a value, or the Status that explains its absence. It has the interface of
// std::expected, which replaces it once the compiler floor has it.
#pragma once

#include <cassert>
#include <optional>
#include <utility>

#include "base/status.h"

namespace gpurun {

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}  // NOLINT: implicit by design
  Result(Status status) : status_(std::move(status)) { assert(!status_.ok()); }  // NOLINT

  bool ok() const noexcept { return value_.has_value(); }
  explicit operator bool() const noexcept { return ok(); }

  // Only after ok().
  T& operator*() & { return *value_; }
  const T& operator*() const& { return *value_; }
  T&& operator*() && { return *std::move(value_); }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

  // Success when there is a value.
  const Status& status() const noexcept { return status_; }

 private:
  std::optional<T> value_;
  Status status_;
};

// Returns the failure of `expression` from the enclosing function.
#define GPURUN_RETURN_IF_ERROR(expression)                                                        \
  do {                                                                                            \
    if (::gpurun::Status gpurun_status = (expression); !gpurun_status.ok()) return gpurun_status; \
  } while (false)

}  // namespace gpurun
