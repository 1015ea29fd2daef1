// GraphHosts: the work of graph nodes in the client. It holds the operations behind the nodes and
// the turns that launches take at them. See protocol/calls/graph_host.h.
//
// A host node blocks the driver's callback thread until the client has answered. An issue queue
// cannot hold a graph, because the driver runs it (docs/adr/0011-graphs-and-host-memory.md).
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "base/bytes.h"
#include "protocol/calls/graph_host.h"
#include "server/driver/cuda_driver.h"
#include "server/handlers/graphs/graph_shadows.h"

namespace gpurun::server {

class Executor;

// Any thread.
class GraphHosts {
 public:
  using Shadow = GraphShadows::Shadow;

  // Its end notifies the client. Everything that may run it holds a share of it.
  struct Operation {
    Operation(GraphHosts& of, std::uint64_t of_client, protocol::GraphWork what,
              std::shared_ptr<Shadow> memory)
        : owner(of), number(of_client), work(what), shadow(std::move(memory)) {}
    ~Operation();
    Operation(const Operation&) = delete;
    Operation& operator=(const Operation&) = delete;

    GraphHosts& owner;
    const std::uint64_t number;  // The client's.
    const protocol::GraphWork work;
    const std::shared_ptr<Shadow> shadow;  // Only for copies.
    // It was refused, and the driver keeps a node of it. Nothing of it may run.
    std::atomic<bool> refused{false};
    // The client is not notified of its end, because the program's object lives on.
    std::atomic<bool> silent{false};
  };
  using OperationPtr = std::shared_ptr<Operation>;

  GraphHosts() = default;
  GraphHosts(const GraphHosts&) = delete;
  GraphHosts& operator=(const GraphHosts&) = delete;

  // Sets the executor for messages to the client, and the context of the last call that had an
  // operation. nullptr keeps the former context.
  void set_executor(Executor& executor, void* context);

  // `shadow` is memory that is shared with an operation that never runs at the same time. For
  // nullptr a copy gets `byte_count` bytes of its own in the current `context`. Returns 0 or the
  // CUresult. After a failure the client is notified that the operation is gone.
  int make(std::uint64_t number, protocol::GraphWork work, std::uint64_t byte_count, void* context,
           std::shared_ptr<Shadow> shadow, OperationPtr* made);

  // The operation of a user object. Returns 0 or the CUresult, and then notifies nobody.
  int make_user_object(std::uint64_t number, OperationPtr* made);
  // For the driver, on any of its threads: the object has ended, and its handle ends with it.
  void end_user_object(std::uint64_t handle);

  // For the driver: the function of a host node. Its argument is the operation.
  static void run(void* operation);
  // Gives `graph` a share of the operation, which its clones, executables and their launches
  // inherit. `object` holds the share until it is released from the graph. Returns 0 or the
  // CUresult, and then there is no share.
  static int give(const CudaDriver& driver, CUgraph graph, const OperationPtr& operation,
                  CUuserObject* object);

  // The client's answers. An answer to an unknown turn is ignored. INVALID_VALUE: the bytes are out
  // of range.
  int bytes(std::uint64_t turn, std::uint64_t offset, ByteView given);
  void done(std::uint64_t turn);

  // Notifies the client that an operation that it made will never exist.
  void tell_gone(std::uint64_t number);

  // The driver's `context` is about to end. See GraphShadows.
  void context_ends(void* context);

  // Ends every turn, now and later, because the client is gone.
  void stop();

 private:
  int count_operation();
  std::future<void> settle_aside();  // With the lock held.
  void take_turn(const Operation& operation);
  void send_bytes(const Operation& operation);

  GraphShadows shadows_;

  std::mutex mutex_;
  std::condition_variable changed_;
  Executor* executor_ = nullptr;                               // Guarded by mutex_.
  void* context_ = nullptr;                                    // Guarded by mutex_.
  std::unordered_map<std::uint64_t, const Operation*> turns_;  // Guarded by mutex_.
  std::uint64_t last_turn_ = 0;                                // Guarded by mutex_.
  std::size_t operations_ = 0;                                 // Guarded by mutex_.
  bool stopping_ = false;                                      // Guarded by mutex_.
};

}  // namespace gpurun::server
