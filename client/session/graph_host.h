// GraphHost: runs the nodes of the program's graphs that belong to this process. These are host
// functions, and copies from and to its memory (protocol/calls/graph_host.h).
//
// Functions run one after the other on one thread of ours, which CUDA allows. A second thread reads
// the bytes that go out, so that no function can delay a copy. The thread that reads the session's
// log writes the bytes that come in, before it handles later items from the worker.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>

#include "base/bytes.h"
#include "base/status.h"
#include "client/bulk/host_box.h"
#include "client/early_answers/host_memory_use.h"
#include "client/log/lane.h"
#include "client/process/thread.h"
#include "client/session/session_types.h"

namespace gpurun::client {

class GraphHost {
 public:
  struct Operation {
    void (*function)(void*) = nullptr;  // A host function, or
    void* user = nullptr;
    HostBox from, to;  // a copy. `from`: out. `to`: in. Both: within this process. Or
    void (*destroy)(void*) = nullptr;  // the destructor of a user object, for `user`,
    Handle object = 0;                 // with this handle.
  };

  // Turns that wait for their thread. In an honest worker each one holds a thread of the driver.
  static constexpr std::size_t kTurnsMax = 65'536;

  // The session's calls.
  struct Calls {
    // Returns false when the session has ended.
    std::function<bool(Lane&, const CallSite&, std::span<const ByteView>)> post;
    // Around an operation (Session::take_device_writes()).
    std::function<void(Lane&)> take_device_writes, give_host_writes;
    // The user object with this handle has ended.
    std::function<void(Handle)> retire;
  };
  explicit GraphHost(Calls calls) : calls_(std::move(calls)) {}
  GraphHost(const GraphHost&) = delete;
  GraphHost& operator=(const GraphHost&) = delete;

  // Any thread. Returns the operation's number, or 0 when there is no memory or thread for it. The
  // operation lives until the worker reports it gone.
  std::uint64_t add(const Operation& operation);
  // Removes an operation that the worker never learned of.
  void forget(std::uint64_t number) noexcept;
  // Nothing: there is no such operation.
  std::optional<Operation> operation(std::uint64_t number);
  // The number of live operations.
  std::size_t operations();
  // The operations' use of the program's memory.
  const GraphMemoryUse& memory_use() const noexcept { return memory_use_; }

  // For the thread that reads the log. kProtocol: there is no such operation, or it is of another
  // kind, or the bytes go beyond its end, or more than kTurnsMax turns wait.
  Status turn(std::uint64_t number, ByteView payload);
  Status bytes(std::uint64_t number, ByteView payload);
  // The destructor of a user object runs on the thread of the functions.
  Status gone(std::uint64_t number);

  void stop() noexcept;  // Ends the threads. Waits only for a function that runs.

 private:
  struct Turn {
    std::shared_ptr<const Operation> operation;
    std::uint64_t number = 0;  // 0: runs a destructor, without an answer.
  };
  struct Line {
    GraphHost* host = nullptr;
    std::condition_variable work;
    std::deque<Turn> turns;  // Guarded by mutex_.
    Thread thread;
  };

  std::shared_ptr<const Operation> find(std::uint64_t number);
  int start_threads();
  void serve(Line& line);
  void answer(const Turn& turn);

  const Calls calls_;
  GraphMemoryUse memory_use_;  // Of operations_.
  std::mutex mutex_;           // Guards all below.
  std::unordered_map<std::uint64_t, std::shared_ptr<const Operation>> operations_;
  std::uint64_t last_ = 0;
  bool stopping_ = false;
  Line functions_;
  Line copies_;
};

}  // namespace gpurun::client
