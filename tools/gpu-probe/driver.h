// Driver: the CUDA driver under test. It is opened at run time, and each function is looked up by
// its exported name. Nothing of CUDA is linked.
#pragma once

#include <cstddef>
#include <cstring>
#include <string>

#include "driver_abi/cuda_abi.h"

namespace gpurun::probe {

// Thrown by Driver::find(). Ends the question, or the wrong call, that needs the function.
struct MissingFunction {
  std::string name;
};

class Driver {
 public:
  // Opens `path` ("libcuda.so.1" is searched for like any library). Exits the process with a
  // message when it cannot be opened: every caller is a process of its own with only one question.
  explicit Driver(const std::string& path);

  template <typename Function>
  Function find(const char* name) const {
    return reinterpret_cast<Function>(address(name));
  }

 private:
  void* address(const char* name) const;
  void* library_;
};

// The function `name` of `driver`: CU(driver, cuInit)(0).
#define CU(driver, name) (driver).find<decltype(&::name)>(#name)

// The state from which most questions start. Its parts are made in this order, and each member is
// valid once its level is reached. kLost: a kernel of the context has faulted. Only wrong calls
// start there.
enum class Level { kNothing, kInit, kContext, kWork, kLost };

struct Stage {
  // Throws CallFailed when a call that must succeed fails.
  Stage(const Driver& opened, Level level);

  const Driver& driver;
  CUdevice device = 0;
  CUcontext context = nullptr;  // The primary context, current.
  CUdeviceptr memory = 0;       // kMemoryBytes in size.
  CUstream stream = nullptr;    // Non-blocking.
  CUevent event = nullptr;
  CUmodule module = nullptr;       // kernels.h
  CUfunction empty = nullptr;      // No parameters.
  CUfunction spin = nullptr;       // Waits until the word at its parameter is not 0.
  CUfunction with_five = nullptr;  // Five parameters of different sizes.

  static constexpr std::size_t kMemoryBytes = 1 << 20;
};

struct CallFailed {
  std::string call;
  CUresult result;
};

// Throws CallFailed unless `result` is success.
void must(CUresult result, const char* call);

// A bad handle that points to readable zeros: a driver that reads through it finds zeros and does
// not crash.
template <typename Handle>
Handle zeros_as() {
  static char zeros[4096] = {};
  return reinterpret_cast<Handle>(zeros);
}
// A bad handle that points to unmapped memory.
template <typename Handle>
Handle hole_as() {
  return reinterpret_cast<Handle>(0xdead'0000UL);
}

// A number that is not a value of the enumeration, as a C program would pass it.
template <typename Enum>
Enum number_as(unsigned number) {
  static_assert(sizeof(Enum) == sizeof number);
  Enum value;
  std::memcpy(&value, &number, sizeof number);
  return value;
}

}  // namespace gpurun::probe
