// Copies and fills: operations on boxes of bytes in memory, of one, two or three dimensions.
#pragma once

#include <cstdint>
#include <vector>

#include "emulated/objects/operation.h"

namespace gpurun::emulated {

// One side of a copy: where the box begins, and the distances between its rows and its slices.
struct BoxSide {
  std::uint64_t address = 0;
  std::uint64_t row_pitch = 0;
  std::uint64_t slice_pitch = 0;
};

struct CopyBox {
  BoxSide source;
  BoxSide destination;
  std::uint64_t width_bytes = 0;
  std::uint64_t height = 1;
  std::uint64_t depth = 1;
};

// The number of bytes from the first to the last byte that a box touches on one side. False:
// overflow.
bool box_span(const BoxSide& side, const CopyBox& box, std::uint64_t* bytes);

// ILLEGAL_ADDRESS when its device memory was freed after it was issued (a node of a graph).
CUresult copy_box(const CopyBox& box);

class CopyOperation final : public Operation {
 public:
  // `described`: the program's description, which cuGraphMemcpyNodeGetParams returns. May be null.
  explicit CopyOperation(const CopyBox& box, std::shared_ptr<const CUDA_MEMCPY3D> described = {})
      : box_(box), described_(std::move(described)) {}
  // A copy with a source that was read when it was issued.
  CopyOperation(const CopyBox& box, std::vector<std::byte> staged);
  CUresult run(Context&) override;
  CUgraphNodeType graph_node_type() const override { return CU_GRAPH_NODE_TYPE_MEMCPY; }
  bool writes_pageable() const override;
  // A graph's copy from pageable memory to the device reads the memory when the graph is launched,
  // as on an H100. So it does not see what a host node of that launch writes there.
  OperationPtr for_launch() const override;
  const CopyBox& box() const { return box_; }
  const CUDA_MEMCPY3D* described() const { return described_.get(); }

 private:
  CopyBox box_;
  std::shared_ptr<const CUDA_MEMCPY3D> described_;
  std::vector<std::byte> staged_;
};

struct Fill {
  std::uint64_t address = 0;
  std::uint64_t row_pitch = 0;
  std::uint64_t width = 0;  // Elements of a row.
  std::uint64_t height = 1;
  std::uint32_t element_bytes = 1;  // 1, 2 or 4.
  std::uint32_t value = 0;
};

// ILLEGAL_ADDRESS as copy_box().
CUresult fill(const Fill& what);

class FillOperation final : public Operation {
 public:
  explicit FillOperation(const Fill& what) : fill_(what) {}
  CUresult run(Context&) override;
  CUgraphNodeType graph_node_type() const override { return CU_GRAPH_NODE_TYPE_MEMSET; }
  const Fill& what() const { return fill_; }

 private:
  Fill fill_;
};

}  // namespace gpurun::emulated
