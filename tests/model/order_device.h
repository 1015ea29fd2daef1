// OrderDevice: a device for the order model. It takes a driver's calls and notes the order that a
// CUDA device would have to keep. Operations complete one at a time, in any order that this allows.
#pragma once

#include <cstddef>
#include <map>
#include <utility>
#include <vector>

#include "server/driver/driver_functions.h"

namespace gpurun::model {

class OrderDevice {
 public:
  // The driver's values: contexts are 1 and 2, streams are 16 * context + 1 and up.
  struct StreamKind {
    int context = 0;
    bool blocking = true;
  };

  // The device of this execution.
  static OrderDevice*& current();
  static server::DriverFunctions functions();

  void* add_stream(int context, bool blocking);
  void* add_event();
  // Gives the driver an operation. Returns its number.
  std::size_t give(void* stream);
  std::size_t record(void* event, void* stream);
  std::size_t wait(void* stream, void* event);
  // The result of a query of the stream.
  bool stream_done(void* stream);
  // Blocks until the context's work so far is complete, as cuMemFree does.
  void wait_for_context(int context);
  int context_now() const;

  // Completes operations one after the other, in an allowed order, until stop().
  void run();
  void stop() { stopping_ = true; }
  // While paused, nothing completes.
  void pause(bool on) { paused_ = on; }
  bool paused() const { return paused_; }

  bool complete(std::size_t operation) const { return operations_[operation].complete; }
  // Whether the device orders `first` before `second`.
  bool before(std::size_t first, std::size_t second) const {
    return operations_[second].after[first];
  }

 private:
  struct Operation {
    int context;
    bool complete = false;
    std::vector<bool> after;  // The numbers of all operations that come before this one,
                              // transitively.
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
  // The operations that a synchronization with the stream waits for.
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
