// HostGates: streams that wait until a function of the program has run in the client.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <unordered_map>

#include "server/worker/execution/call.h"

namespace gpurun::server {

// Any thread.
class HostGates {
 public:
  // CUDA_ERROR_OUT_OF_MEMORY over protocol::kHostFunctionsMax, INVALID_VALUE for a ticket in use.
  int open(std::uint64_t ticket);
  // The stream has reached the gate, or has failed with `result`. False: an unknown ticket.
  bool reached(std::uint64_t ticket, int result);
  // Blocks until reached() or stop(). Returns the stream's result. May come before open().
  int wait(std::uint64_t ticket);
  // The gate cannot be used: wait() returns `result`, and release() forgets the gate.
  void refuse(std::uint64_t ticket, int result);
  void release(std::uint64_t ticket);
  // True for a released gate, which is forgotten. `*reached`: whether the stream had reached it.
  bool take_released(std::uint64_t ticket, bool* reached);

  // Ends every wait(), now and later, with CUDA_ERROR_UNKNOWN.
  void stop();

 private:
  struct Gate {
    bool opened = false;
    bool reached = false;
    bool released = false;
    bool refused = false;
    int result = 0;
  };

  std::mutex mutex_;
  std::condition_variable changed_;
  std::unordered_map<std::uint64_t, Gate> gates_;  // Guarded by mutex_.
  bool stopping_ = false;                          // Guarded by mutex_.
};

void add_host_function_handlers(Handlers& handlers);
// The call was not run. If it is a gate, the thread that waits at it gets `result`.
void refuse_host_gate(Call& call, int result);

}  // namespace gpurun::server
