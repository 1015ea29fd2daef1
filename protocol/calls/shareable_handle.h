// Shareable handles: payloads of form kRaw of cuMemExportToShareableHandle,
// cuMemImportFromShareableHandle and their counterparts for pools. Client processes of one lease
// share allocations and pools by descriptors (docs/adr/0041). Only with Feature::kShareableHandles.
#pragma once

#include <cstdint>

#include "protocol/calls/interprocess.h"

namespace gpurun::protocol {

enum class ExportStep : std::uint32_t { kBegin = 1, kEnd = 2 };

// The export's row. kBegin is a fence, and its reply is a SharingHandle, which the daemon draws at
// random. Each kBegin makes another one. kEnd ends that SharingHandle, because the program has
// closed the descriptor. It may be posted with Order::kOrderedHost.
struct ExportRequest {
  ExportStep step = ExportStep::kBegin;
  std::uint32_t zero = 0;
  std::uint64_t object = 0;  // kBegin: the client's handle.
  SharingHandle token{};     // kEnd.
};
static_assert(sizeof(ExportRequest) == 80);

// The import's row: a fence, answered with an ImportGrant.
struct ImportRequest {
  SharingHandle token{};
  std::uint64_t minted = 0;  // The client's handle for the object, if the worker knows none.
};
static_assert(sizeof(ImportRequest) == 72);

struct ImportGrant {
  std::uint64_t object = 0;  // The minted handle, or the known one, which has one owner more.
  std::uint32_t device = 0;  // Of an allocation: the worker's ordinal of its device.
  std::uint32_t zero = 0;
};
static_assert(sizeof(ImportGrant) == 16);

}  // namespace gpurun::protocol
