// What the worker counted, asked for when the program ends (protocol/observation.h).
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "client/session.h"
#include "protocol/observation.h"
#include "protocol/recording.h"

namespace gpurun::client {

// How long the end of a program waits for a worker that does not answer.
inline constexpr std::chrono::milliseconds kObservationPatience{2'000};

// All its events may have to come.
inline constexpr std::chrono::milliseconds kRecordingPatience{20'000};

// Asks on a thread of its own: a worker that is busy or gone holds up nobody for longer than
// `patience`, and then the thread stays behind (the process ends). Costs one round trip. `session`
// lives for ever.
//   kDeadline      no answer within `patience`
//   kPeerGone      the session has ended
//   kProtocol      the answer is none
//   kUnavailable   the worker counts nothing, no thread or no lane is to be had
Result<protocol::WorkerStatistics> ask_statistics(Session& session,
                                                  std::chrono::milliseconds patience);

// The worker records from now on; a few looks at its clock. A round trip each, on this thread. As
// ask_statistics(), but without an end to its patience: the session has just begun.
Result<std::vector<protocol::ClockSample>> begin_recording(Session& session);

// What the worker has recorded, as it came, and its clock at the end. As ask_statistics(); a few
// round trips more.
struct WorkersRecording {
  Bytes bytes;
  std::vector<protocol::ClockSample> clocks;
};
Result<WorkersRecording> ask_recording(Session& session, std::chrono::milliseconds patience);

}  // namespace gpurun::client
