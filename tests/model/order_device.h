// A device for the order model: it takes a driver's calls and notes what a CUDA device would have
// to do before what. Operations complete one at a time, in any order that this allows.
#pragma once

#include <cstddef>
#include <map>
#include <utility>
#include <vector>

#include "server/driver/driver_functions.h"

namespace gpurun::model {

class OrderDevice {
 public:
  // The driver's values: contexts 1 and 2, streams 16 * context + 1 and up.
  struct StreamKind {
    int context = 0;
    bool blocking = true;
  };

  // The one of this execution.
  static OrderDevice*& current();
  static server::DriverFunctions functions();

  void* add_stream(int context, bool blocking);
  void* add_event();
  // The driver is given an operation. Its number.
  std::size_t give(void* stream);
  std::size_t record(void* event, void* stream);
  std::size_t wait(void* stream, void* event);
  // A query of the stream says that it is done.
  bool stream_done(void* stream);
  // Blocks until the context's work so far is complete, as cuMemFree does.
  void wait_for_context(int context);
  int context_now() const;

  // Completes what can be completed, one after the other, until stop().
  void run();
  void stop() { stopping_ = true; }
  // Nothing is completed meanwhile.
  void pause(bool on) { paused_ = on; }
  bool paused() const { return paused_; }

  bool complete(std::size_t operation) const { return operations_[operation].complete; }
  // What the operation comes after, by the device's rules.
  bool before(std::size_t first, std::size_t second) const {
    return operations_[second].after[first];
  }

 private:
  struct Operation {
    int context;
    bool complete = false;
    std::vector<bool> after;  // Numbers of operations; of all, transitively.
  };
  struct Stream {
    int context;
    bool blocking;
    bool legacy;
    std::ptrdiff_t last = -1;
  };

  Stream& stream_of(void* stream);
  void come_after(Operation& operation, std::ptrdiff_t other);
  bool all_done(const std::vector<std::ptrdiff_t>& operations) const;
  // What a synchronisation with the stream waits for.
  std::vector<std::ptrdiff_t> last_of(void* stream);
  bool may_complete(const Operation& operation) const;
  bool done(std::ptrdiff_t operation) const {
    return operation < 0 || operations_[static_cast<std::size_t>(operation)].complete;
  }

  std::vector<Operation> operations_;
  std::map<void*, Stream> streams_;
  std::map<int, Stream> legacy_;  // By context.
  std::map<void*, std::ptrdiff_t> events_;
  std::map<int, int> thread_context_;
  std::uintptr_t last_handle_ = 100;
  bool stopping_ = false;
  bool paused_ = false;
};

}  // namespace gpurun::model
