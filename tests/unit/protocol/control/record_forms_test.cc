// Record forms: the sizes of records that custom calls exchange belong to the protocol number. The
// hashes of rows do not cover them, so a peer of the same number would misread another form.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>

#include "protocol/calls/captures.h"
#include "protocol/calls/device_memory.h"
#include "protocol/calls/graph_conditional.h"
#include "protocol/calls/graph_host.h"
#include "protocol/calls/graph_memory.h"
#include "protocol/calls/graph_parameters.h"
#include "protocol/calls/host_function.h"
#include "protocol/calls/interprocess.h"
#include "protocol/calls/memory_pool.h"
#include "protocol/calls/shareable_handle.h"
#include "protocol/control/version.h"
#include "protocol/log/frame.h"
#include "protocol/log/record.h"

namespace gpurun::protocol {
namespace {

// FNV-1a over the sizes in order.
template <typename... Records>
std::uint64_t digest_of_sizes() {
  std::uint64_t digest = 0xcbf29ce484222325;
  for (const std::size_t bytes : {sizeof(Records)...}) {
    digest = (digest ^ bytes) * 0x100000001b3;
  }
  return digest;
}

// If a record has another form, increase kVersion and put both new values here (docs/versions.md).
TEST(RecordForms, AnotherFormHasAnotherProtocolNumber) {
  const std::uint64_t logs =
      digest_of_sizes<FrameHeader, BulkHeader, RecordHeader, ReplyHeader, LaunchPayload,
                      LaunchAttribute, CopyPayload, BoxCopyPayload, PulledSource, MemsetPayload,
                      EventPayload>();
  const std::uint64_t graphs =
      digest_of_sizes<CaptureQuestion, CaptureAnswer, GraphConditionalPayload, GraphNodePayload,
                      GraphTurnPayload, GraphUserObjectPayload, GraphCopyReply, GraphUpdatePayload,
                      GraphUpdateReply, GraphInstantiation, GraphInstantiationReply,
                      GraphMemoryPayload, GraphMemoryReply>();
  const std::uint64_t nodes =
      digest_of_sizes<GraphNodeFacts, GraphBatchPayload, GraphBatchReply, GraphMovePayload>();
  const std::uint64_t memory =
      digest_of_sizes<CreditRequest, CreditGrant, MemoryReturn, HostFunctionPayload, ShareRequest,
                      OpenRequest, OpenGrant, CloseRequest, CloseReply, PoolAttributePayload,
                      ExportRequest, ImportRequest, ImportGrant>();
  EXPECT_EQ(kVersion, 6U);
  EXPECT_EQ(logs, 15679988226218589399U);
  EXPECT_EQ(graphs, 15260856166689331167U);
  EXPECT_EQ(memory, 15922335945138740207U);
  EXPECT_EQ(nodes, 17518507169256328749U);
}

}  // namespace
}  // namespace gpurun::protocol
