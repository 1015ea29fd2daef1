// DeviceOrder: what the executor adds on the device so that work keeps the order of the client's
// calls.
//
// It has the barriers behind calls that were answered early, the streams of each context that may
// have work, and the streams that may capture. Every call of a stream passes before() on its way to
// the driver. One thread at a time, with the executor's role, except where a comment names others.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "protocol/log/record.h"
#include "server/driver/driver_functions.h"
#include "server/worker/execution/call.h"
#include "server/worker/execution/call_kinds.h"
#include "server/worker/execution/client_streams.h"
#include "server/worker/execution/context_streams.h"
#include "server/worker/execution/device_barrier.h"
#include "server/worker/execution/executor_inbox.h"
#include "server/worker/execution/handles.h"

namespace gpurun::server {

class DeviceOrder {
 public:
  // `owner` is that of enter_context(). Borrows all references.
  DeviceOrder(const DriverFunctions& driver, const CallKinds& kinds, HandleTable& handles,
              ClientStreams& streams, ExecutorInbox& inbox, std::uint64_t owner)
      : driver_(driver),
        kinds_(kinds),
        handles_(handles),
        streams_(streams),
        inbox_(inbox),
        owner_(owner),
        barrier_(driver) {}
  DeviceOrder(const DeviceOrder&) = delete;
  DeviceOrder& operator=(const DeviceOrder&) = delete;

  // `call` is about to be issued in its stream. Its context is current. Returns 0 or the CUresult.
  int before(const Call& call);
  // As before(), for a copy between contexts. The driver puts it behind the legacy stream of the
  // current one (manual, cuMemcpyPeer).
  int before_copy_between(const protocol::RecordHeader& header);
  // `call` is a barrier and is issued. Returns 0 or the CUresult.
  int after(const Call& call);
  // Puts a barrier behind all unfinished work of the context. Returns 0 or the CUresult. A
  // capturing stream gets no barrier, because before() has made a side stream wait for its earlier
  // work.
  int mark_behind_context(const protocol::RecordHeader& header);

  using OwedEvents = std::vector<DeviceBarrier::OwedEvent>;
  // See DeviceBarrier::owed_to().
  OwedEvents owed_to(std::uint32_t lane, std::uint64_t context, std::uint64_t sequence) {
    forget_contexts();
    return barrier_.owed_to(lane, context, sequence);
  }
  DeviceBarrier& barrier() noexcept { return barrier_; }

  // Forgets the state of contexts that have ended. Without such a context it only exchanges a flag.
  void forget_contexts() {
    for (const std::uint64_t context : inbox_.take_ended_contexts()) forget(context);
  }

  // Whether all work of the call's context is known to be complete. It asks the driver, and makes
  // the context current. False for a call without a context.
  bool is_behind_complete_work(const protocol::RecordHeader& header);

  // Waits for a context: see ContextStreams. end_context_wait() and wait_for_more(): any thread.
  bool context_is_known(std::uint64_t context) { return context_streams_.is_known(context); }
  bool context_is_done(std::uint64_t context);
  void begin_context_wait(std::uint64_t context) { context_streams_.begin_wait(context); }
  void end_context_wait() { context_streams_.end_wait(); }
  // From now on contexts wait for more than their own streams.
  void wait_for_more() { context_streams_.give_up(); }

 private:
  void forget(std::uint64_t context);
  bool is_done(void* stream) const;
  void note_for_context(const Call& call);
  bool may_enter_capture(const protocol::RecordHeader& header) const;
  void keep_work_before_capture(const Call& call, std::uint64_t home);
  void keep_work(const Call& call, std::uint64_t home, void* stream);

  const DriverFunctions& driver_;
  const CallKinds& kinds_;
  HandleTable& handles_;
  ClientStreams& streams_;
  ExecutorInbox& inbox_;
  const std::uint64_t owner_;
  DeviceBarrier barrier_;
  ContextStreams context_streams_;
  // The driver's streams in which a capture was begun and may not have ended, with their contexts.
  std::unordered_map<void*, std::uint64_t> captures_;
};

}  // namespace gpurun::server
