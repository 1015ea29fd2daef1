// StreamReports: reports of the end of a stream's work to clients that have queried it.
//
// A program that polls a stream would otherwise ask for as long as the work takes (docs/adr/0009).
// The query asks for a report by kFlagTell, and the answer promises it by kReplyFlagTells. The
// worker records an event of its own behind the work. It promises nothing where that event could
// change what the device does: in the legacy stream, in a blocking stream while the legacy one has
// work, in a capture, and in a full stream.
//
// With the executor's role. The reports come from any thread.
#pragma once

#include <atomic>
#include <cstddef>

#include "server/driver/driver_functions.h"
#include "server/worker/execution/brief_poll.h"
#include "server/worker/execution/call.h"
#include "server/worker/execution/completions.h"
#include "server/worker/execution/device_order.h"
#include "server/worker/execution/reply_sender.h"
#include "server/worker/execution/stream_bound.h"

namespace gpurun::server {

class StreamReports {
 public:
  // Reports under way in a session. Each is an event of the driver. Further queries get none.
  static constexpr std::size_t kUnderWayMax = 1024;

  // Borrowed.
  struct Parts {
    const DriverFunctions& driver;
    Completions& completions;
    StreamBound& bound;
    ReplySender& replies;
    BriefPoll& poll;
    DeviceOrder& order;
  };
  explicit StreamReports(const Parts& parts) : parts_(parts) {}
  StreamReports(const StreamReports&) = delete;
  StreamReports& operator=(const StreamReports&) = delete;

  // Answers a query of a stream that is not complete, and promises a report. False: nothing was
  // done, because the query asks for no report or none can be promised. The context of the query
  // is current.
  bool answer(Call& query);

 private:
  const Parts parts_;
  std::atomic<std::size_t> under_way_{0};
};

}  // namespace gpurun::server
