// The copies whose bytes travel beside the log, or in the reply.
#pragma once

#include "server/worker/call.h"

namespace gpurun::server {

// Form::kCopyIn. Held until its bytes have come; each chunk goes to the device when it is there.
CallOutcome run_copy_in(Call& call);
// Form::kCopyOut.
CallOutcome run_copy_out(Call& call);

}  // namespace gpurun::server
