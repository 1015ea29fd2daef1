// Executor: hands decoded calls to the driver: which may be issued now, which are held, who gets
// which reply. Decides order by the records' headers alone (protocol/record.h, Order).
//
// One thread at a time has the executor's role (role_): the decoder with each frame that came, or
// the executor's own thread when something that a held queue waits for has happened (bytes came, a
// staging slot retired, a helper is done). The role is held across driver calls on purpose: it is
// what makes "one executor issues" true. Everybody else talks to it through wake().
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "protocol/record.h"
#include "server/call.h"
#include "server/worker.h"

namespace gpurun::server {

class BulkReceiver;
class Outbox;
struct ExecutorState;

class Executor {
 public:
  // Borrows all; they outlive it.
  Executor(const WorkerOptions& options, Outbox& outbox, BulkReceiver& bulk);
  ~Executor();  // Waits for helpers; shut the driver's work down before by ending the connections.
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // The records of one frame, in log order (decoder thread). Issues what can be issued and queues
  // the rest; blocks only while more than kQueuedBytesMax are queued. kProtocol: the session ends.
  Status accept(ByteView records, std::uint64_t first_sequence);

  // Last record taken: what the outbox acknowledges. Any thread.
  std::uint64_t taken_through() const noexcept;

  // Something changed that a held queue may wait for. Any thread, never blocks.
  void wake() noexcept;

  // Handlers' side, see Call.
  HandleTable& handles() noexcept;
  const WorkerOptions& options() const noexcept;

 private:
  friend class Call;
  std::unique_ptr<ExecutorState> state_;
};

}  // namespace gpurun::server
