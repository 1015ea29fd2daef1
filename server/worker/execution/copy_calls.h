// Copy calls: the handlers of copies with bytes that travel beside the log, or in the reply.
#pragma once

#include "server/worker/execution/call.h"

namespace gpurun::server {

// Form::kCopyIn. The call is held until its bytes have come. Each chunk goes to the device when it
// is here. With kFlagBulkOnDemand the worker requests the bytes once the stream has reached the
// copy. With kFlagPulled it reads them itself, and requests them only if that fails.
CallOutcome run_copy_in(Call& call);
// Form::kCopyOut. With kFlagWritten the worker writes the bytes into the client's memory itself,
// and sends those that it cannot write.
CallOutcome run_copy_out(Call& call);

}  // namespace gpurun::server
