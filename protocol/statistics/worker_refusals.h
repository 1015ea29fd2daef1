// Worker refusals: why the worker's RDMA device does not move large copies by itself. The client
// asks for them at the end (StatisticsQuery::kRefusals), for people.
#pragma once

#include <cstddef>
#include <string>

#include "base/bytes.h"
#include "base/result.h"

namespace gpurun::protocol {

// Empty: the device moves such copies, or no copy has asked for it.
struct WorkerRefusals {
  std::string reads;       // Out of the client's memory (docs/adr/0048).
  std::string writes;      // Into the client's memory (docs/adr/0054).
  std::string gpu_memory;  // Straight into the memory of a GPU (docs/adr/0055).
  bool empty() const noexcept { return reads.empty() && writes.empty() && gpu_memory.empty(); }
};

// Bytes of each reason. The rest of a longer one is left out.
inline constexpr std::size_t kRefusalBytesMax = 320;

Bytes encode(const WorkerRefusals& refusals);
// The reasons are printable, whatever the worker sends. kProtocol: another size.
Result<WorkerRefusals> parse_worker_refusals(ByteView bytes);

}  // namespace gpurun::protocol
