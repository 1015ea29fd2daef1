// Call: one record as a handler sees it, and what a handler may answer.
//
// A handler is a plain function, found by opcode (or by form, for the hot records). It runs with
// the call's context current on its thread and must not block in the driver: it uses the
// asynchronous form where there is one. What can only block is parked (if the client waits) or
// belongs to Order::kOrderedHost. No handler runs twice for one record, except that kHeld asks for
// it.
#pragma once

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/bytes.h"
#include "protocol/record.h"
#include "server/bulk/whole_payload.h"
#include "server/driver/driver_functions.h"
#include "server/driver/error_numbers.h"
#include "server/worker/handles.h"

namespace gpurun::server {

class Executor;
struct ExecutorState;
class Call;

struct CallOutcome {
  enum class Kind : std::uint8_t {
    kDone,    // Issued; `result` is the driver's CUresult. A fence is answered now.
    kHeld,    // Not (fully) issued: call again when something has changed (bytes came, a staging
              // slot retired). Its queue waits, nothing else does. Keep state in Call::scratch.
    kParked,  // `wait` goes on on a helper thread, where it may block, and returns the CUresult.
    kAfterStream  // `wait` is called when the call's stream has done what it was given so far, or
                  // has failed; it must not block, and returns the CUresult of a stream that has
                  // not.
  };
  Kind kind = Kind::kDone;
  int result = 0;
  int (*wait)(Call&) = nullptr;
  bool (*ready)(Call&) = nullptr;

  static CallOutcome done(int result) { return {Kind::kDone, result}; }
  static CallOutcome held() { return {Kind::kHeld}; }
  // Only for calls that the client waits for, or on an ordered-host thread (where `wait` simply
  // runs). The queue goes on with its next call meanwhile. `ready`: that `wait` would return at
  // once; it is asked for a moment first, which saves a helper where the device is done soon.
  static CallOutcome park(int (*wait)(Call&), bool (*ready)(Call&) = nullptr) {
    return {Kind::kParked, 0, wait, ready};
  }
  // Only for calls of Order::kStream that the client waits for, into a stream that does not
  // capture.
  static CallOutcome after_stream(int (*wait)(Call&)) { return {Kind::kAfterStream, 0, wait}; }
};

using Handler = CallOutcome (*)(Call&);

// Who serves which call. Filled by the owner of the handlers before the executor starts; constant
// afterwards.
struct Handlers {
  static constexpr std::size_t kOpcodes = 4096;
  // Form kLaunch, whatever function the record is of. nullptr: CUDA_ERROR_NOT_SUPPORTED.
  Handler launch = nullptr;
  // Custom functions, forms kCall and kRaw. nullptr: `generic`.
  std::array<Handler, kOpcodes> by_opcode{};
  // Generated rows (libffi). nullptr: CUDA_ERROR_NOT_SUPPORTED.
  Handler generic = nullptr;
  // Hears of a call that no handler will see, because its context or stream is none: for what
  // somebody waits for besides the reply. May be nullptr.
  void (*not_run)(Call&, int result) = nullptr;
  // A wait that may be answered early, and questions; see questions.cc. 0: none.
  std::uint16_t stream_synchronize = 0;
  std::uint16_t event_synchronize = 0;
  std::uint16_t stream_query = 0;
  std::uint16_t event_query = 0;
  std::uint16_t event_elapsed_time = 0;
  // The client's handles of the two events; 0 for what is none. With event_elapsed_time.
  std::array<std::uint64_t, 2> (*events_of_elapsed_time)(const Call&) = nullptr;
  // Ordered host calls that wait for the work of their context. 0: none.
  std::uint16_t memory_free = 0;
  // Ends a context, with events that helpers may wait for. 0: none.
  std::uint16_t context_destroy = 0;
  // Calls that end what work on the device may need, or take it away, and that CUDA lets a program
  // make once it has waited for that work. Bit by opcode.
  std::bitset<kOpcodes> ends{};
};

class Call {
 public:
  const protocol::RecordHeader& header() const noexcept { return header_; }
  // Private to the worker; valid until the outcome is final (through kHeld and a parked wait).
  ByteView payload() const noexcept { return payload_; }
  // Whether the client waits for the reply.
  bool awaited() const noexcept { return (header_.flags & protocol::kFlagFence) != 0; }
  // What came as transfer header().bulk, whole, for calls that are no copies (module images): the
  // call is not run before it is here, and its queue is held. At most limits::kImageBytesMax. Valid
  // as long as payload(); private memory, page-aligned and followed by at least one zero byte, so
  // that text is terminated. Sent with Session::call_with_bulk(). Empty when header().bulk is 0.
  ByteView bulk_payload() const noexcept {
    return bulk_ == nullptr ? ByteView() : ByteView(bulk_->bytes());
  }

  // For calls with kFlagBulkOnDemand, on their ordered-host thread: asks the client for the bytes,
  // waits for them, and makes them bulk_payload(). 0 or the CUresult.
  int fetch_bulk();

  // The driver's context of header().context, current on this thread; nullptr for context 0.
  void* driver_context() const noexcept { return driver_context_; }
  // The driver's stream of header().stream (kStream calls).
  void* driver_stream() const noexcept { return driver_stream_; }

  // The driver's stream for any stream value of this call's lane and context: handle, 0, 1 or 2.
  HandleTable::Found resolve_stream(std::uint64_t client_stream);
  HandleTable& handles() noexcept;
  const DriverFunctions& driver() const noexcept;
  // What WorkerOptions::user is: the handlers' own state (module cache, libffi tables).
  void* user() const noexcept;
  Executor& executor() noexcept { return *executor_; }

  // The results of a fence, at most kReplyPayloadBytesMax. Ignored when nobody waits.
  MutableBytes reserve_reply(std::size_t byte_count);  // Empty when over the bound.
  void set_reply(ByteView bytes);

  // The client's handle that this call creates: when the call fails and nobody waits for it, the
  // client learns which handle is no good.
  void set_created(std::uint64_t client_handle) noexcept { created_ = client_handle; }

  // State of the handler from kHeld to its next run, and into `wait`. Zero at first.
  std::array<std::uint64_t, 6> scratch{};

 private:
  friend class Executor;
  friend struct ExecutorState;

  protocol::RecordHeader header_;
  ByteView payload_;
  void* driver_context_ = nullptr;
  void* driver_stream_ = nullptr;
  Executor* executor_ = nullptr;
  std::uint64_t created_ = 0;
  std::uint64_t decoded_ns_ = 0;  // For the observer; 0 when it is off.
  Bytes owned_;                   // Backs payload_ once the call has outlived its frame.
  std::shared_ptr<WholePayload> bulk_;
  Bytes reply_;
};

}  // namespace gpurun::server
