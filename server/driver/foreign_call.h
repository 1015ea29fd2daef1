// ForeignCall: a call through libffi of a driver function with a signature that only its row gives.
// It is the only way in which generated rows reach the driver.
#pragma once

#include <ffi.h>

#include <array>
#include <memory>
#include <vector>

#include "base/result.h"
#include "driver_abi/row.h"
#include "protocol/calls/call.h"

namespace gpurun::server {

// A row's signature in libffi's form. Immutable once prepared. Any thread.
class ForeignCall {
 public:
  // kInternal: the generic codec cannot carry the row.
  static Result<std::unique_ptr<ForeignCall>> prepare(const driver_abi::Row& row);
  ForeignCall(const ForeignCall&) = delete;
  ForeignCall& operator=(const ForeignCall&) = delete;

  // Calls `function`, which is the driver's and has the row's signature. `arguments` has one
  // pointer to storage for each parameter. Returns the CUresult.
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
