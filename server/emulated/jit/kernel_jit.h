// Machine code for parsed kernels: LLVM's ORC behind a narrow door. No LLVM type is visible here.
#pragma once

#include <memory>

#include "base/result.h"
#include "server/emulated/codegen/device_abi.h"
#include "server/emulated/codegen/function_source.h"

namespace gpurun::emulated {

// Any thread.
class KernelJit {
 public:
  // A kernel that needs a function of `runtime` that is null fails to compile with kInternal.
  static Result<std::unique_ptr<KernelJit>> create(const RuntimeFunctions& runtime);
  ~KernelJit();
  KernelJit(const KernelJit&) = delete;
  KernelJit& operator=(const KernelJit&) = delete;

  // The code lives as long as this object. kRefused as translate(); kInternal when the code
  // generator fails.
  Result<KernelFunction> compile(const KernelSource& kernel);

 private:
  struct Machine;
  explicit KernelJit(std::unique_ptr<Machine> machine);
  std::unique_ptr<Machine> machine_;
};

}  // namespace gpurun::emulated
