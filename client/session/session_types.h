// Session types: what the parts of a session and its callers exchange.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "base/brief_spin.h"
#include "base/bytes.h"
#include "client/bulk/extra_bulk_connections.h"
#include "client/early_answers/copy_answers.h"
#include "client/early_answers/early_wait_limiter.h"
#include "client/early_answers/stream_progress.h"
#include "client/host_memory/host_memory_offer.h"
#include "client/log/handles.h"
#include "client/log/stream_polls.h"
#include "protocol/log/record.h"
#include "transport/transport.h"

namespace gpurun::client {

class WorkerExitPage;

// CUresults that the call path itself decides (cuda.h). Our own failures are mapped only here.
inline constexpr int kResultOutOfMemory = 2;     // CUDA_ERROR_OUT_OF_MEMORY: lanes, handles.
inline constexpr int kResultNotInitialized = 3;  // CUDA_ERROR_NOT_INITIALIZED: a forked child.
inline constexpr int kResultInvalidValue = 1;    // CUDA_ERROR_INVALID_VALUE: over a bound.
inline constexpr int kResultNotReady = 600;      // CUDA_ERROR_NOT_READY.
// CUDA_ERROR_DEVICE_UNAVAILABLE: worker, daemon, network or server died. Every later call returns
// it.
inline constexpr int kResultPeerGone = 46;

// What a call adds to its payload. See protocol::RecordHeader.
struct CallSite {
  std::uint16_t opcode = 0;
  protocol::Form form = protocol::Form::kCall;
  protocol::Order order = protocol::Order::kContext;
  // kFlagBarrier, kFlagWritesSubject, kFlagTell, kFlagPassesStreams. The session sets the others.
  std::uint16_t flags = 0;
  Handle context = 0;
  Handle stream = 0;  // Handle, or 0, 1, 2 as from the program (_ptsz: 0 becomes 2).
  Handle subject = 0;
  std::uint64_t bulk = 0;  // Transfer. Set by the session's own functions.
  // Not sent. What the call waits for. When it succeeds, all of that is complete and printed.
  Waits waits = Waits::kNot;
  // Not sent. The work that the call adds to its stream.
  Work work = Work::kAny;
};

struct Reply {
  int result = 0;    // CUresult of this very call, as the worker's driver gave it.
  ByteView payload;  // Valid until this lane's next call.
};

struct SessionOptions {
  bool every_call_is_a_fence = false;  // GPURUN_SYNC=1.
  bool launches_wait = false;          // CUDA_LAUNCH_BLOCKING=1: a launch returns its own error.
  bool statistics = false;             // GPURUN_STATS=1: count per function.
  bool packing = true;                 // GPURUN_PACKING is not "off".
  bool packed_chunks = false;          // The worker supports them (Feature::kPackedChunks).
  bool packed_records = false;         // The worker supports them (Feature::kPackedRecords).
  bool spread_copies = false;          // The worker supports them (Feature::kSpreadCopies).
  bool pulled_copies = false;          // The worker supports them (Feature::kPulledCopies).
  bool written_results = false;        // The worker supports them (Feature::kWrittenResults).
  // GPURUN_SPIN_US, 0 to kSpinUsMax: how long a thread that sends or waits for a reply polls before
  // it sleeps.
  std::chrono::microseconds spin = BriefSpin::kSpan;
  static constexpr long kSpinUsMax = 1000;
  // GPURUN_BULK_CONNECTIONS, 1 to kBulkConnectionsMax: connections that share the bytes of copies.
  // 0: it is not set, and the number is found by measuring.
  unsigned bulk_connections = 0;
  static constexpr long kBulkConnectionsMax = 8;
  // Set by tests. The product uses the bounds of protocol/limits.h.
  std::chrono::milliseconds silence_deadline{limits::kSilenceDeadlineS * 1000};
  std::chrono::milliseconds heartbeat{limits::kHeartbeatS * 1000};
  std::size_t log_bytes = limits::kLogBytes;
  EarlyWaitLimiter::Clock::duration ahead_slack = EarlyWaitLimiter::kSlack;
  StreamPolls::Clock::duration ask_after_min = StreamPolls::kAskAfterMin;
  std::FILE* output = stdout;  // Where device printf goes. See device_output.h.
  // Reads GPURUN_SYNC, GPURUN_STATS, GPURUN_PACKING, GPURUN_SPIN_US, GPURUN_BULK_CONNECTIONS and
  // CUDA_LAUNCH_BLOCKING. A text that is not a number in its range counts as unset, with a warning.
  static SessionOptions from_environment();
};

// Connections over which both ends have proved their identity and exchanged hellos.
struct SessionChannels {
  std::unique_ptr<transport::Connection> log;
  std::vector<std::unique_ptr<transport::Connection>> bulk;  // At least one.
  std::string server_name;                                   // For messages: "gpu1:4790".
  // The source of more connections, if their number is to be measured. nullptr: there is no
  // source.
  std::unique_ptr<ExtraBulkConnections> more;
  // Gives the worker the memory file of the host arena. nullptr: worker and client do not share
  // host memory.
  std::unique_ptr<HostMemoryOffer> host_memory;
  // The worker can keep copies of host memory (Feature::kHostMirror), and the user wants it.
  bool mirrors_host_memory = false;
  // The lowest number for our descriptors in the program's process.
  int descriptor_min = 0;
  // Where to ask how the worker died, by `id`. nullptr: nowhere.
  WorkerExitPage* deaths = nullptr;
  std::array<std::uint8_t, 16> id{};
};

// A record of an event, as Session::stream_of_record() returns it. Stream 0: the event has no such
// record.
struct EventRecord {
  Handle stream = 0;
  std::uint64_t record = 0;
};

}  // namespace gpurun::client
