// MemoryOperations: waits for values in memory, and writes of values (manual, "Stream Memory
// Operations"). A stream runs them as one piece of work, and a graph has them as one node.
#pragma once

#include <utility>
#include <vector>

#include "emulated/objects/operation.h"

namespace gpurun::emulated {

// Whether the operation is one of cuda.h's, on memory that the device reaches. INVALID_VALUE.
CUresult check_memory_operation(const CUstreamBatchMemOpParams& what);

// They run in order. Immutable, so a program may read the list as long as the node keeps it.
class MemoryOperations final : public Operation {
 public:
  explicit MemoryOperations(std::vector<CUstreamBatchMemOpParams> list) : list_(std::move(list)) {}
  CUresult run(Context& context) override;
  CUgraphNodeType graph_node_type() const override { return CU_GRAPH_NODE_TYPE_BATCH_MEM_OP; }
  const std::vector<CUstreamBatchMemOpParams>& list() const { return list_; }

 private:
  const std::vector<CUstreamBatchMemOpParams> list_;
};

}  // namespace gpurun::emulated
