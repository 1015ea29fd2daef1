// The copies whose bytes travel beside the log, or in the reply.
#pragma once

#include "server/worker/call.h"

namespace gpurun::server {

// Form::kCopyIn. Held until its bytes have come; each chunk goes to the device when it is there.
// With kFlagBulkOnDemand the client is asked for them when the stream has come to the copy.
CallOutcome run_copy_in(Call& call);
// Form::kCopyOut.
CallOutcome run_copy_out(Call& call);

}  // namespace gpurun::server
