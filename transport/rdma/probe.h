// Probe: one request of a queue pair that is connected to itself. No query of verbs says whether a
// device writes remote memory, or reports the immediate of such a write.
#pragma once

#include "base/deadline.h"
#include "base/result.h"
#include "transport/rdma/port.h"

namespace gpurun::transport::rdma {

// Returns true when the device writes and reports an immediate with the write, and false when it
// only sends and receives (PVRDMA, devices without RDMA). A device that is silent costs four
// seconds.
//   kUnavailable  it does neither.
Result<bool> probe_writes(const Port& port, Deadline deadline);
// Returns whether the device reads remote memory, with up to `port.reads` reads at once. A device
// that is silent costs two seconds.
bool probe_reads(const Port& port, Deadline deadline);

}  // namespace gpurun::transport::rdma
