// Call: one record as a handler sees it, and the outcomes that a handler may return.
//
// A handler is a plain function that is found by opcode, or by form for the hot records. It runs
// with the context of the call current on its thread. It must not block in the driver and uses the
// asynchronous form of a driver call where one exists. A call that can only block is parked if the
// client waits for it, or has Order::kOrderedHost. No handler runs twice for one record, except
// after it returned kHeld.
#pragma once

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/bytes.h"
#include "protocol/log/record.h"
#include "server/bulk/whole_payload.h"
#include "server/driver/driver_functions.h"
#include "server/driver/error_numbers.h"
#include "server/worker/execution/handles.h"

namespace gpurun::server {

class Executor;
class Call;
class HostMemory;

struct CallOutcome {
  enum class Kind : std::uint8_t {
    kDone,    // Issued. `result` is the driver's CUresult. A fence is answered now.
    kHeld,    // Not issued, or only in part. The handler runs again when bytes have come, a staging
              // slot has retired or something else has changed. Only the queue of the call waits.
              // Keep state in Call::scratch.
    kParked,  // `wait` continues on a helper thread, where it may block, and returns the CUresult.
    kAfterStream  // `wait` runs once the stream of the call has completed its work so far, or has
                  // failed. It must not block. It returns the CUresult for a stream that has not
                  // failed.
  };
  Kind kind = Kind::kDone;
  int result = 0;
  int (*wait)(Call&) = nullptr;
  bool (*ready)(Call&) = nullptr;

  static CallOutcome done(int result) { return {Kind::kDone, result}; }
  static CallOutcome held() { return {Kind::kHeld}; }
  // Only for calls that the client waits for, or on an ordered-host thread, where `wait` runs
  // directly. Meanwhile the queue continues with its next call. `ready` returns whether `wait`
  // would return at once. It is polled for a moment first, which saves a helper thread when the
  // device finishes soon.
  static CallOutcome park(int (*wait)(Call&), bool (*ready)(Call&) = nullptr) {
    return {Kind::kParked, 0, wait, ready};
  }
  // Only for calls of Order::kStream that the client waits for, in a stream that does not capture.
  static CallOutcome after_stream(int (*wait)(Call&)) { return {Kind::kAfterStream, 0, wait}; }
};

using Handler = CallOutcome (*)(Call&);

// The handler of each call. The owner of the handlers fills it before the executor starts. It is
// constant afterwards.
struct Handlers {
  static constexpr std::size_t kOpcodes = 4096;
  // Form kLaunch, whatever function the record names. nullptr: CUDA_ERROR_NOT_SUPPORTED.
  Handler launch = nullptr;
  // Custom functions, forms kCall and kRaw. nullptr: `generic`.
  std::array<Handler, kOpcodes> by_opcode{};
  // Generated rows (libffi). nullptr: CUDA_ERROR_NOT_SUPPORTED.
  Handler generic = nullptr;
  // Called for a call that no handler runs because its context or stream is invalid. It serves
  // those that wait for something besides the reply. May be nullptr.
  void (*not_run)(Call&, int result) = nullptr;
  // A wait that may be answered early, and queries: see completion_queries.h. 0: not served.
  std::uint16_t stream_synchronize = 0;
  std::uint16_t event_synchronize = 0;
  std::uint16_t stream_query = 0;
  std::uint16_t event_query = 0;
  std::uint16_t event_elapsed_time = 0;
  // The client's handles of the two events. 0 replaces a handle that cannot be read. Set together
  // with event_elapsed_time.
  std::array<std::uint64_t, 2> (*events_of_elapsed_time)(const Call&) = nullptr;
  // Ordered host calls that wait for the work of their context. 0: not served.
  std::uint16_t memory_free = 0;
  // Whether a call of memory_free only waits for that work. The issuer itself runs it once the work
  // is complete. Set together with memory_free, or nullptr: none does.
  bool (*only_waits)(const Call&) = nullptr;
  // Ends a context together with events that helper threads may wait for. 0: not served.
  std::uint16_t context_destroy = 0;
  // Calls that destroy or remove what work on the device may need. CUDA lets a program make them
  // once it has waited for that work. One bit for each opcode.
  std::bitset<kOpcodes> ends{};
  // Calls that return how much memory is in use. One bit for each opcode.
  std::bitset<kOpcodes> accounts{};
  // Calls behind which a wait for complete work has effects besides its result (skipped_waits.h).
  // One bit for each opcode.
  std::bitset<kOpcodes> needs_waits{};
};

class Call {
 public:
  const protocol::RecordHeader& header() const noexcept { return header_; }
  // Private to the worker. Valid until the outcome is final, through kHeld and a parked wait.
  ByteView payload() const noexcept { return payload_; }
  // Whether the client waits for the reply.
  bool awaited() const noexcept { return (header_.flags & protocol::kFlagFence) != 0; }
  // The whole bytes of transfer header().bulk, for calls that are not copies (module images). The
  // call runs only once they are here, and its queue is held until then. At most
  // limits::kImageBytesMax.
  //
  // Valid as long as payload(). The memory is private, page-aligned and followed by at least one
  // zero byte, so that text is terminated. Session::call_with_bulk() sends it. Empty when
  // header().bulk is 0.
  ByteView bulk_payload() const noexcept {
    return bulk_ == nullptr ? ByteView() : ByteView(bulk_->bytes());
  }

  // For calls with kFlagBulkOnDemand, on their ordered-host thread. Requests the bytes from the
  // client, waits for them, and makes them bulk_payload(). Returns 0 or the CUresult.
  int fetch_bulk();

  // Copies the payload of a call that outlives its frame.
  static std::unique_ptr<Call> keep(Call&& call);

  // The driver's context of header().context, current on this thread. nullptr for context 0.
  void* driver_context() const noexcept { return driver_context_; }
  // The driver's stream of header().stream (kStream calls).
  void* driver_stream() const noexcept { return driver_stream_; }

  // The driver's stream for any stream value of this call's lane and context: a handle, 0, 1 or 2.
  HandleTable::Found resolve_stream(std::uint64_t client_stream);
  HandleTable& handles() noexcept;
  const DriverFunctions& driver() const noexcept;
  // WorkerOptions::host_memory.
  const HostMemory* host_memory() const noexcept;
  // WorkerOptions::user: the state of the handlers (module cache, libffi tables).
  void* user() const noexcept;
  Executor& executor() noexcept { return *executor_; }

  // The results of a fence, at most kReplyPayloadBytesMax. Ignored when the client does not wait.
  MutableBytes reserve_reply(std::size_t byte_count);  // Empty when over the bound.
  void set_reply(ByteView bytes);

  // The client's handle that this call creates. If the call fails and the client does not wait for
  // it, the client learns from this that the handle is invalid.
  void set_created(std::uint64_t client_handle) noexcept { created_ = client_handle; }
  // For the answer.
  const Bytes& reply() const noexcept { return reply_; }
  std::uint64_t created() const noexcept { return created_; }

  // State of the handler from kHeld to its next run, and into `wait`. Zero at first.
  std::array<std::uint64_t, 6> scratch{};

 private:
  friend class CallBulk;
  friend class CallRunner;
  friend class Executor;
  friend class Issuer;

  protocol::RecordHeader header_;
  ByteView payload_;
  void* driver_context_ = nullptr;
  void* driver_stream_ = nullptr;
  Executor* executor_ = nullptr;
  std::uint64_t created_ = 0;
  std::uint64_t decoded_ns_ = 0;  // For the statistics. 0 when it is off.
  Bytes owned_;                   // Backs payload_ once the call has outlived its frame.
  std::shared_ptr<WholePayload> bulk_;
  Bytes reply_;
};

}  // namespace gpurun::server
