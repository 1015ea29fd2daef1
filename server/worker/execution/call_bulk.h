// CallBulk: the bytes of a call that travel beside the log, in either direction.
//
// The executor's role, except end(), which any thread that answers the call may use.
#pragma once

#include <cstddef>
#include <cstdint>

#include "server/bulk/bulk_lanes.h"
#include "server/worker/execution/call.h"

namespace gpurun::server {

// Call::scratch of a copy with kFlagPulled: how its bytes come.
inline constexpr std::size_t kPullScratch = 2;
enum PullState : std::uint64_t {
  kNotPulled,  // The call has not been issued.
  kPulls,      // BulkPulls reads them.
  kAsks        // The client sends them, because they could not be read.
};

// Call::scratch of a copy with kFlagWritten: how its bytes go.
inline constexpr std::size_t kWriteScratch = 2;
enum WriteState : std::uint64_t {
  kUndecided,  // The call has not been issued.
  kWrites,     // BulkWrites writes them.
  kSends       // They go as chunks.
};

class CallBulk {
 public:
  // nullptr: calls with bulk are not supported. Borrows the lanes.
  explicit CallBulk(BulkLanes* lanes) : lanes_(lanes) {}

  // Announces the bulk of the call, so that its bytes need not wait in staging for the call's turn.
  void expect(const Call& call);
  // Takes the payload beside the log. Returns 0 or the CUresult. `here` is false if it has not come
  // yet.
  int take(Call& call, bool* here);
  // Ends what the call did not consume or deliver.
  void end(const Call& call, int result);
  // The bytes of the call's transfer. 0 for a transfer that the call never requested.
  static std::uint64_t bytes(const Call& call);

 private:
  BulkLanes* const lanes_;
};

}  // namespace gpurun::server
