// ManagedVariables: `__managed__` variables that host code of the client uses
// (protocol/calls/managed_variable.h, docs/adr/0045). The memory is the driver's own. Its lines are
// in the HostMirror until their library ends.
//
// This process compares and writes the memory while kernels may run. So each device must have
// CONCURRENT_MANAGED_ACCESS (Programming Guide, "Unified Memory": on others, an access of the host
// to managed memory while a kernel runs is a fault).
//
// The client is untrusted. It names libraries and variables, and never an address. The driver says
// where a variable lies.
//
// Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>

#include "protocol/calls/managed_variable.h"
#include "server/driver/cuda_driver.h"
#include "server/handlers/memory/host_arena.h"
#include "server/worker/execution/call.h"

namespace gpurun::server {

class ManagedVariables {
 public:
  ManagedVariables(const CudaDriver& driver, HostArena& arena) : driver_(driver), arena_(arena) {}
  ManagedVariables(const ManagedVariables&) = delete;
  ManagedVariables& operator=(const ManagedVariables&) = delete;

  // The variable `name` of the client's library. From now on its lines are in the mirror. Returns
  // the call's CUresult. NOT_FOUND: the library has no such managed variable. NOT_SUPPORTED: a
  // device has no concurrent access, or the driver has the variable where no client can, or it
  // shares a line with another library's. OUT_OF_MEMORY: over a bound. Others are the driver's.
  int find(Call& call, std::uint64_t library, const std::string& name,
           protocol::ManagedVariable* variable);
  // Call it before the driver ends the library. The variables leave the mirror. No variable of the
  // library is found before the result ends.
  std::unique_lock<std::mutex> end_library(std::uint64_t library);

 private:
  struct Lines {
    std::uint64_t end = 0;
    std::uint64_t library = 0;  // The client's handle.
  };

  // These need the mutex. Return 0 or the call's CUresult.
  int ask(std::uint64_t library, CUlibrary value, const char* name, CUdeviceptr* address,
          std::size_t* bytes);
  // Puts the variable's lines into the mirror.
  int add(const protocol::ManagedVariable& variable, std::uint64_t library);

  const CudaDriver& driver_;
  HostArena& arena_;
  std::mutex mutex_;
  std::map<std::uint64_t, Lines> lines_;  // Disjoint, by their begin. Guarded by mutex_.
  std::uint64_t bytes_ = 0;               // Of lines_. Guarded by mutex_.
  // Libraries for which the first device's primary context is kept. Guarded by mutex_.
  std::set<std::uint64_t> keep_context_;
};

// cuLibraryGetManaged, form kRaw.
CallOutcome run_managed_variable(Call& call);

}  // namespace gpurun::server
