// ForeignCall: calls a driver function whose signature is known from its row only, through libffi.
// The one way in which generated rows reach the driver.
#pragma once

#include <ffi.h>

#include <array>
#include <memory>
#include <vector>

#include "base/result.h"
#include "driver_abi/row.h"
#include "protocol/call.h"

namespace gpurun::server {

// A row's signature as libffi wants it. Immutable once prepared; any thread.
class ForeignCall {
 public:
  // kInternal: a row that the generic codec cannot carry.
  static Result<std::unique_ptr<ForeignCall>> prepare(const driver_abi::Row& row);
  ForeignCall(const ForeignCall&) = delete;
  ForeignCall& operator=(const ForeignCall&) = delete;

  // Calls `function` (the driver's own, of the row's signature) with one pointer to storage for
  // each parameter; returns its CUresult.
  int invoke(void* function, void** arguments) const;

 private:
  // A by-value structure: enough integers to give it its size. Every such structure of CUDA's
  // driver API is made of integers and so is passed like this one (System V and AAPCS64 alike).
  struct Aggregate {
    ffi_type type{};
    std::vector<ffi_type*> elements;
  };

  ForeignCall() = default;
  ffi_type* type_of(const driver_abi::Parameter& parameter);
  ffi_type* aggregate(std::size_t bytes);

  ffi_cif cif_{};
  std::array<ffi_type*, protocol::kParametersMax> types_{};
  std::vector<std::unique_ptr<Aggregate>> aggregates_;
};

}  // namespace gpurun::server
