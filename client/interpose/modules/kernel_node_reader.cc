// Kernel node reader: the parameters of kernel nodes, read back from the worker.
//
// "The kernelParams or extra array returned in nodeParams, as well as the argument values it points
// to, are owned by the node. This memory remains valid until the node is destroyed or its
// parameters are modified" (manual, cuGraphKernelNodeGetParams). So each node that was asked about
// has a copy of its values here.
#include <array>
#include <cstring>
#include <memory>
#include <vector>

#include "client/interpose/call/forward.h"
#include "client/interpose/capture/node_memory.h"
#include "client/interpose/custom.h"
#include "client/interpose/modules/load.h"
#include "client/interpose/modules/objects.h"
#include "protocol/calls/module_calls.h"

namespace gpurun::client::interpose {
namespace {

using modules::Function;
using protocol::KernelNode;

struct Values {
  Bytes block;
  std::size_t bytes = 0;
  std::vector<void*> pointers;      // One for each parameter.
  std::array<void*, 5> extra = {};  // If the layout of the kernel is unknown.

  bool operator==(const Values& other) const {
    return block == other.block && pointers.size() == other.pointers.size();
  }
};

NodeMemory<Values>& values_of_nodes() {
  static auto* const all = new NodeMemory<Values>;
  return *all;
}

// cuda.h: CU_LAUNCH_PARAM_BUFFER_POINTER, _BUFFER_SIZE, _END.
std::unique_ptr<Values> arrange(const Function& function, Bytes block) {
  auto values = std::make_unique<Values>();
  values->block = std::move(block);
  values->bytes = values->block.size();
  const modules::Kernel& kernel = function.info;
  if (kernel.layout_known && kernel.block_bytes == values->block.size()) {
    for (const protocol::KernelParameter& each : kernel.parameters) {
      values->pointers.push_back(values->block.data() + each.offset);
    }
  } else {
    values->extra = {as<void*>(Handle{1}), values->block.data(), as<void*>(Handle{2}),
                     &values->bytes, nullptr};
  }
  return values;
}

int ask(EntryContext& here, Handle node, KernelNode* answer) {
  int result = here.check(node, HandleKind::kGraphNode);
  if (result != 0) return result;
  CallSite site = here.passing_site();
  site.opcode = opcode::cuGraphKernelNodeGetParams_v2;
  site.form = protocol::Form::kRaw;
  Reply reply;
  reply.result = -1;  // Not answered.
  result = here.session().call(*here.lane, site, bytes_of(node), &reply);
  if (result != 0) return result;
  Result<KernelNode> read = protocol::unpack_kernel_node(reply.payload);
  if (!read.ok()) return CUDA_ERROR_UNKNOWN;
  *answer = std::move(*read);
  return 0;
}

// A function of the node's kernel, and the kernel where it is a library's. The runtime knows a
// kernel by `kern` (docs/cuda-gotchas.md).
int name_kernel(EntryContext& here, Function* function, CUDA_KERNEL_NODE_PARAMS* out) {
  if (function->kind == HandleKind::kFunction) {
    out->func = as<CUfunction>(function->handle);
    if (function->kernel != nullptr) out->kern = as<CUkernel>(function->kernel->handle);
    return 0;
  }
  out->kern = as<CUkernel>(function->handle);
  if (here.context == nullptr) return 0;
  Function* made = nullptr;
  const int result = modules::function_of_kernel(here, function, &made);
  if (made != nullptr) out->func = as<CUfunction>(made->handle);
  return result;
}

int read(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS* out) {
  EntryContext here;
  if (const int result = here.enter(); result != 0) return result;
  if (here.enter_context() != 0) here.context = nullptr;
  KernelNode answer;
  if (const int result = ask(here, handle_of(node), &answer); result != 0) return result;
  Function* function = nullptr;
  int result = modules::find_function(here, as<CUfunction>(answer.launch.function), &function);
  if (result != 0) return result;
  CUDA_KERNEL_NODE_PARAMS made{};
  result = name_kernel(here, function, &made);
  if (result != 0) return result;
  made.ctx = as<CUcontext>(answer.context);
  made.gridDimX = answer.launch.grid[0];
  made.gridDimY = answer.launch.grid[1];
  made.gridDimZ = answer.launch.grid[2];
  made.blockDimX = answer.launch.block[0];
  made.blockDimY = answer.launch.block[1];
  made.blockDimZ = answer.launch.block[2];
  made.sharedMemBytes = answer.launch.shared_bytes;
  if (!answer.block.empty()) {
    const Values& values = values_of_nodes().keep(here.handles(), handle_of(node),
                                                  arrange(*function, std::move(answer.block)));
    if (!values.pointers.empty()) made.kernelParams = const_cast<void**>(values.pointers.data());
    if (values.extra[0] != nullptr) made.extra = const_cast<void**>(values.extra.data());
  }
  *out = made;
  return 0;
}

}  // namespace

namespace custom {

// The structure of CUDA 11 has no member for a library's kernel, so it needs a function.
CUresult cuGraphKernelNodeGetParams(CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS_v1* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUDA_KERNEL_NODE_PARAMS made{};
  if (const int result = read(hNode, &made); result != 0) return cuda(result);
  if (made.func == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  std::memcpy(nodeParams, &made, sizeof *nodeParams);
  return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return cuda(read(hNode, nodeParams));
}

}  // namespace custom
}  // namespace gpurun::client::interpose
