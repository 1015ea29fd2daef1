// Worker statistics: what the worker has counted and recorded
// (protocol/statistics/worker_statistics.h). Asked for when the program ends.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "client/session/session.h"
#include "protocol/statistics/recording.h"
#include "protocol/statistics/worker_refusals.h"
#include "protocol/statistics/worker_statistics.h"

namespace gpurun::client {

// How long the end of a program waits for a worker that does not answer.
inline constexpr std::chrono::milliseconds kStatisticsPatience{2'000};

// For a recording, which may bring all the worker's events.
inline constexpr std::chrono::milliseconds kRecordingPatience{20'000};

// Asks on a thread of its own, so that a worker that is busy or gone delays the caller for at most
// `patience`. The thread then stays behind, because the process ends. Costs one round trip.
// `session` must live forever.
//   kDeadline      no answer within `patience`.
//   kPeerGone      the session has ended.
//   kProtocol      the answer is malformed.
//   kUnavailable   the worker counts nothing, or there is no thread or lane.
Result<protocol::WorkerStatistics> ask_statistics(Session& session,
                                                  std::chrono::milliseconds patience);

// Why the worker's RDMA device does not move large copies by itself. As ask_statistics(). An older
// worker's answer is kUnavailable.
Result<protocol::WorkerRefusals> ask_refusals(Session& session, std::chrono::milliseconds patience);

// The worker records from now on. Returns a few readings of its clock, at a round trip each, on
// this thread. Errors as ask_statistics(), but without a time limit, because the session has just
// begun.
Result<std::vector<protocol::ClockSample>> begin_recording(Session& session);

// What the worker has recorded, unparsed, and its clock at the end. As ask_statistics(), with a few
// more round trips.
struct WorkersRecording {
  Bytes bytes;
  std::vector<protocol::ClockSample> clocks;
};
Result<WorkersRecording> ask_recording(Session& session, std::chrono::milliseconds patience);

}  // namespace gpurun::client
