// CallKinds: what a call is for the order of calls, from its record and the opcodes that the
// handlers name. It has no state.
//
// Any thread.
#pragma once

#include "driver_abi/opcodes.h"
#include "protocol/log/record.h"
#include "server/worker/execution/call.h"

namespace gpurun::server {

class CallKinds {
 public:
  // Borrows the handlers.
  explicit CallKinds(const Handlers& handlers) : handlers_(handlers) {}

  static bool is_hot(protocol::Form form) {
    return form != protocol::Form::kCall && form != protocol::Form::kRaw;
  }
  static bool begins_capture(const protocol::RecordHeader& header);
  // The legacy or the null stream.
  static bool is_legacy(const protocol::RecordHeader& header) {
    return header.stream < protocol::kStreamPerThread;
  }

  // Asks whether a stream or an event is done, or for the time between two events.
  bool is_query(const Call& call) const;
  // A wait for a stream or an event that the client answered itself.
  bool is_early_wait(const protocol::RecordHeader& header) const;
  bool is_early_event_wait(const protocol::RecordHeader& header) const {
    return is_early_wait(header) && header.opcode == handlers_.event_synchronize;
  }
  // Ends an object that work on the device may need.
  bool ends_object(const protocol::RecordHeader& header) const {
    return header.order != protocol::Order::kStream && !is_hot(header.form) &&
           header.opcode < Handlers::kOpcodes && handlers_.ends[header.opcode];
  }
  // Asks how much memory is in use, which depends on the frees that streams have reached.
  bool asks_for_accounts(const protocol::RecordHeader& header) const {
    return header.order == protocol::Order::kContext && !is_hot(header.form) &&
           header.opcode < Handlers::kOpcodes && handlers_.accounts[header.opcode];
  }
  bool ends_context(const protocol::RecordHeader& header) const {
    return header.opcode != 0 && header.opcode == handlers_.context_destroy;
  }

 private:
  const Handlers& handlers_;
};

}  // namespace gpurun::server
