// Refusals: those of the bulk connections, and of the GPUs' memory.
#include "server/worker/execution/refusals.h"

#include "server/bulk/bulk_lanes.h"
#include "server/driver/direct_memory.h"
#include "server/worker/execution/executor.h"

namespace gpurun::server {

protocol::WorkerRefusals refusals_of(Executor& executor) {
  protocol::WorkerRefusals refusals;
  BulkLanes* const bulk = executor.bulk();
  if (bulk == nullptr) return refusals;
  refusals.reads = bulk->pulls().why_refused();
  refusals.writes = bulk->writes().why_refused();
  if (const DirectMemory* const direct = executor.options().direct; direct != nullptr) {
    refusals.gpu_memory = direct->why_refused();
  } else if (bulk->pulls().may_open()) {
    refusals.gpu_memory = "the operator has turned GPUDirect off";
  }
  return refusals;
}

}  // namespace gpurun::server
