// GraphHost: what nodes of the program's graphs do in this process: host functions, and copies from
// and to its memory, when a launch of the graph stands at them (protocol/graph_host.h).
//
// Functions run one after the other on one thread of ours, as CUDA may run them; bytes are fetched
// on another, so that no function can hold up a copy. What a copy brings is written by
// whoever reads the session's log, before he hears what the worker says later.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "base/bytes.h"
#include "base/status.h"
#include "client/host_box.h"
#include "client/thread.h"

namespace gpurun::client {

class Session;

class GraphHost {
 public:
  struct Operation {
    void (*function)(void*) = nullptr;  // A function, or
    void* user = nullptr;
    HostBox from, to;  // a copy: `from`: it goes out; `to`: it comes in; both: it stays here.
  };

  // That wait for their thread. In an honest worker each holds a thread of the driver.
  static constexpr std::size_t kTurnsMax = 65'536;

  explicit GraphHost(Session*& session) noexcept : session_(session) {}
  GraphHost(const GraphHost&) = delete;
  GraphHost& operator=(const GraphHost&) = delete;

  // Any thread. The operation's number; 0: no memory or thread for it. It lives until the worker
  // says that it is gone.
  std::uint64_t add(const Operation& operation);
  // The worker was not told of it.
  void forget(std::uint64_t number) noexcept;
  // How many live.
  std::size_t operations();
  // There are functions or copies into the program's memory, so that graphs may write there at any
  // time.
  bool may_write() const noexcept { return writers_.load(std::memory_order_acquire) != 0; }
  // A graph lives that reads or writes the program's memory, and may do so at any time.
  bool may_touch() const noexcept { return living_.load(std::memory_order_acquire) != 0; }

  // Who reads the log. kProtocol: no such operation, or not its kind, or bytes beyond its end, or
  // more turns at once than kTurnsMax.
  Status turn(std::uint64_t number, ByteView payload);
  Status bytes(std::uint64_t number, ByteView payload);
  Status gone(std::uint64_t number);

  void stop() noexcept;  // Ends the threads; nothing is waited for but a function that runs.

 private:
  struct Turn {
    std::shared_ptr<const Operation> operation;
    std::uint64_t number = 0;
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

  Session*& session_;
  std::atomic<std::size_t> living_{0};   // How many operations_, and
  std::atomic<std::size_t> writers_{0};  // of them that write.
  std::mutex mutex_;                     // Guards all below.
  std::unordered_map<std::uint64_t, std::shared_ptr<const Operation>> operations_;
  std::uint64_t last_ = 0;
  bool stopping_ = false;
  Line functions_;
  Line copies_;
};

}  // namespace gpurun::client
