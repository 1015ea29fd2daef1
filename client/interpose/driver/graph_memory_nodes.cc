// Graph memory nodes: nodes that allocate memory, and their parameters. Nodes that free it are
// generated rows (CUDA Driver API manual, "Graph Management").
#include <atomic>
#include <cstring>
#include <memory>
#include <vector>

#include "client/interpose/capture/graph_nodes.h"
#include "client/interpose/custom.h"
#include "client/interpose/memory/device_windows.h"
#include "client/interpose/memory/graph_memory.h"
#include "protocol/calls/graph_memory.h"

namespace gpurun::client::interpose {
namespace {

using protocol::GraphMemoryPayload;
using protocol::GraphMemoryReply;
using Accesses = std::vector<CUmemAccessDesc>;

// Graphs belong to no context, so a thread without one may build them.
int enter(EntryContext& here) {
  if (const int result = here.enter(); result != 0) return result;
  if (here.enter_context() != 0) here.context = nullptr;
  return 0;
}

CallSite site_of(const EntryContext& here, std::uint16_t row) {
  CallSite site = here.passing_site();
  site.opcode = row;
  site.form = protocol::Form::kRaw;
  return site;
}

// The program's number of a device becomes the worker's.
int number_for_worker(const EntryContext& here, CUmemLocation* location) {
  if (location->type != CU_MEM_LOCATION_TYPE_DEVICE) return 0;
  const Device* const device = here.devices().device(location->id);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  location->id = device->server_ordinal;
  return 0;
}

void number_for_program(const EntryContext& here, CUmemLocation* location) {
  if (location->type != CU_MEM_LOCATION_TYPE_DEVICE) return;
  location->id = here.devices().ordinal_of_server(location->id);
}

// Host memory would have to be the client's, as for cuMemCreate.
int check_location(const CUmemLocation& location) {
  if (static_cast<unsigned>(location.type) > CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return location.type >= CU_MEM_LOCATION_TYPE_HOST ? int{CUDA_ERROR_NOT_SUPPORTED} : 0;
}

// Manual, CUDA_MEM_ALLOC_NODE_PARAMS: there must not be more descriptors than GPUs.
int read_parameters(const EntryContext& here, const CUDA_MEM_ALLOC_NODE_PARAMS& given,
                    GraphMemoryPayload* payload, Accesses* accesses) {
  const auto devices = static_cast<std::size_t>(here.devices().device_count());
  const std::size_t count = given.accessDescCount;
  if (count > devices || count > protocol::kGraphMemoryAccessesMax ||
      (given.accessDescs == nullptr && count != 0)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  payload->properties = given.poolProps;
  payload->properties.win32SecurityAttributes = nullptr;
  payload->bytes = given.bytesize;
  payload->access_count = static_cast<std::uint32_t>(count);
  int result = check_location(given.poolProps.location);
  if (result == 0) result = number_for_worker(here, &payload->properties.location);
  for (std::size_t i = 0; i < count && result == 0; ++i) {
    accesses->push_back(given.accessDescs[i]);
    result = number_for_worker(here, &accesses->back().location);
  }
  return result;
}

int add(const EntryContext& here, CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies,
        std::size_t count, CUDA_MEM_ALLOC_NODE_PARAMS* given) {
  GraphMemoryPayload payload;
  payload.graph = handle_of(graph);
  payload.dependency_count = static_cast<std::uint32_t>(count);
  int result = here.check(payload.graph, HandleKind::kGraph);
  std::vector<Handle> behind;
  for (std::size_t i = 0; i < count && result == 0; ++i) {
    behind.push_back(handle_of(dependencies[i]));
    result = here.check(behind.back(), HandleKind::kGraphNode);
  }
  if (result != 0) return result;
  if (check_dependencies(here.handles(), payload.graph, behind) == Sound::kWrong) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Accesses accesses;
  result = read_parameters(here, *given, &payload, &accesses);
  if (result != 0) return result;
  payload.node = mint_node(here.handles(), payload.graph, 0);
  if (payload.node == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  const ByteView parts[] = {bytes_of(payload),
                            byte_view(behind.data(), behind.size() * sizeof(Handle)),
                            byte_view(accesses.data(), accesses.size() * sizeof(CUmemAccessDesc))};
  Reply reply;
  reply.result = -1;  // Not answered.
  result =
      here.session().call(*here.lane, site_of(here, opcode::cuGraphAddMemAllocNode), parts, &reply);
  std::uint64_t address = 0;
  // The result may be an earlier call's failure although this call has done its work.
  if (reply.result != 0 || reply.payload.size() != sizeof address) {
    here.handles().retire(payload.node);
    return result != 0 ? result : int{CUDA_ERROR_UNKNOWN};
  }
  std::memcpy(&address, reply.payload.data(), sizeof address);
  keep_graph_memory(address, payload.bytes, given->poolProps.location.id);
  given->dptr = address;
  *out = as<CUgraphNode>(payload.node);
  return result;
}

// Lists that the program may read at any time, because the manual keeps them valid until the node
// is destroyed. There are few different ones, so they live as long as the process.
struct KeptAccesses {
  Accesses accesses;
  KeptAccesses* next = nullptr;
};
std::atomic<KeptAccesses*> g_kept{nullptr};

const CUmemAccessDesc* keep(Accesses accesses) {
  if (accesses.empty()) return nullptr;
  const std::size_t bytes = accesses.size() * sizeof(CUmemAccessDesc);
  auto made = std::make_unique<KeptAccesses>();
  made->accesses = std::move(accesses);
  made->next = g_kept.load(std::memory_order_acquire);
  do {
    for (const KeptAccesses* each = made->next; each != nullptr; each = each->next) {
      if (each->accesses.size() == made->accesses.size() &&
          std::memcmp(each->accesses.data(), made->accesses.data(), bytes) == 0) {
        return each->accesses.data();
      }
    }
  } while (!g_kept.compare_exchange_weak(made->next, made.get(), std::memory_order_acq_rel));
  return made.release()->accesses.data();
}

int get(const EntryContext& here, CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS* out) {
  const std::uint64_t handle = handle_of(node);
  int result = here.check(handle, HandleKind::kGraphNode);
  if (result != 0) return result;
  Reply reply;
  reply.result = -1;  // Not answered.
  result = here.session().call(*here.lane, site_of(here, opcode::cuGraphMemAllocNodeGetParams),
                               bytes_of(handle), &reply);
  if (reply.result != 0) return result;
  GraphMemoryReply read;
  if (reply.payload.size() < sizeof read) return CUDA_ERROR_UNKNOWN;
  std::memcpy(&read, reply.payload.data(), sizeof read);
  const ByteView rest = ByteView(reply.payload).subspan(sizeof read);
  if (read.access_count > protocol::kGraphMemoryAccessesMax ||
      rest.size() != read.access_count * sizeof(CUmemAccessDesc)) {
    return CUDA_ERROR_UNKNOWN;
  }
  Accesses accesses(read.access_count);
  if (!rest.empty()) std::memcpy(accesses.data(), rest.data(), rest.size());
  for (CUmemAccessDesc& each : accesses) number_for_program(here, &each.location);
  *out = CUDA_MEM_ALLOC_NODE_PARAMS{};
  out->poolProps = read.properties;
  out->poolProps.win32SecurityAttributes = nullptr;
  number_for_program(here, &out->poolProps.location);
  out->accessDescCount = accesses.size();
  out->accessDescs = keep(std::move(accesses));
  out->bytesize = read.bytes;
  out->dptr = read.address;
  return result;
}

}  // namespace

namespace custom {

CUresult cuGraphAddMemAllocNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                const CUgraphNode* dependencies, size_t numDependencies,
                                CUDA_MEM_ALLOC_NODE_PARAMS* nodeParams) {
  if (phGraphNode == nullptr || nodeParams == nullptr ||
      (dependencies == nullptr && numDependencies != 0) ||
      numDependencies > limits::kArrayCountMax) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  EntryContext here;
  if (const int result = enter(here); result != 0) return cuda(result);
  // A node that was made is not made again, whatever failure of an earlier call came with it.
  CUgraphNode made = nullptr;
  int earlier = 0;
  const auto attempt = [&] {
    const int result = add(here, &made, hGraph, dependencies, numDependencies, nodeParams);
    if (made == nullptr) return result;
    earlier = result;
    return 0;
  };
  // Idle credits are on the current context's device.
  const int result = here.context == nullptr ? attempt() : or_without_credits(here, attempt);
  if (made != nullptr) *phGraphNode = made;
  return cuda(result != 0 ? result : earlier);
}

CUresult cuGraphMemAllocNodeGetParams(CUgraphNode hNode, CUDA_MEM_ALLOC_NODE_PARAMS* params_out) {
  if (params_out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  EntryContext here;
  if (const int result = enter(here); result != 0) return cuda(result);
  return cuda(get(here, hNode, params_out));
}

}  // namespace custom
}  // namespace gpurun::client::interpose
