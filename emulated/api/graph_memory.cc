// Memory nodes of graphs, user objects, and attributes of kernel nodes.
#include "emulated/objects/graph_memory.h"

#include <algorithm>

#include "driver_abi/semantics/launch_attributes.h"
#include "emulated/api.h"
#include "emulated/api/entry.h"
#include "emulated/api/graph_nodes.h"
#include "emulated/api/launch_kernel.h"
#include "emulated/objects/device.h"
#include "emulated/objects/memory_registry.h"

namespace gpurun::emulated {
namespace {

CUresult check_attribute(CUlaunchAttributeID attribute) {
  const auto id = static_cast<std::uint32_t>(attribute);
  return static_cast<CUresult>(driver_abi::check_node_attribute(id));
}

// Attributes that a kernel node has and that can be set. The others are hints without effect.
CUresult change_kernel(CUgraphNode handle, CUlaunchAttributeID attribute,
                       const CUlaunchAttributeValue& value) {
  GPURUN_TRY(check_attribute(attribute));
  const auto node = handles().find<GraphNode>(handle);
  if (node == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto before = std::dynamic_pointer_cast<LaunchOperation>(node->operation());
  if (before == nullptr) return CUDA_ERROR_INVALID_VALUE;
  KernelLaunch launch = before->launch();
  CUlaunchAttribute one{};
  one.id = attribute;
  one.value = value;
  GPURUN_TRY(apply_launch_attribute(one, &launch));
  node->set_operation(std::make_shared<LaunchOperation>(std::move(launch)));
  return CUDA_SUCCESS;
}

// Manual, CUDA_MEM_ALLOC_NODE_PARAMS: at most as many as there are devices.
CUresult read_accesses(const CUDA_MEM_ALLOC_NODE_PARAMS& parameters,
                       std::vector<CUmemAccessDesc>* accesses) {
  const std::size_t count = parameters.accessDescCount;
  if (count > devices().size()) return CUDA_ERROR_INVALID_VALUE;
  if (count != 0 && parameters.accessDescs == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (std::size_t i = 0; i < count; ++i) {
    const CUmemAccessDesc& access = parameters.accessDescs[i];
    if (access.location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
    if (device_at(access.location.id) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    accesses->push_back(access);
  }
  return CUDA_SUCCESS;
}

CUresult enter_object(CUuserObject handle, unsigned count, std::shared_ptr<UserObject>* object) {
  GPURUN_ENTER_DRIVER();
  *object = handles().find<UserObject>(handle);
  if (*object == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return count == 0 || count > 0x7fffffff ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

}  // namespace

CUresult make_allocation(Graph& graph, Device& device, std::uint64_t bytes, CUdeviceptr* address,
                         OperationPtr* operation, std::vector<CUmemAccessDesc> accesses) {
  // cuda.h, CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE.
  if (bytes == 0 || graph.moved()) return CUDA_ERROR_INVALID_VALUE;
  auto memory = GraphMemory::allocate(device, bytes);
  if (memory == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  *address = memory->address();
  *operation = std::make_shared<GraphMemoryOperation>(CU_GRAPH_NODE_TYPE_MEM_ALLOC, *address, bytes,
                                                      device.ordinal(), std::move(accesses));
  graph.keep(std::move(memory));
  return CUDA_SUCCESS;
}

CUresult make_allocation(Graph& graph, CUDA_MEM_ALLOC_NODE_PARAMS* parameters,
                         OperationPtr* operation) {
  if (parameters->poolProps.allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
      parameters->poolProps.handleTypes != CU_MEM_HANDLE_TYPE_NONE ||
      parameters->poolProps.location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Device* device = device_at(parameters->poolProps.location.id);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  std::vector<CUmemAccessDesc> accesses;
  GPURUN_TRY(read_accesses(*parameters, &accesses));
  return make_allocation(graph, *device, parameters->bytesize, &parameters->dptr, operation,
                         std::move(accesses));
}

CUresult check_without_memory(const Graph& graph) {
  for (const GraphNodePtr& node : graph.nodes()) {
    if (std::dynamic_pointer_cast<GraphMemoryOperation>(node->operation()) != nullptr) {
      return CUDA_ERROR_NOT_SUPPORTED;
    }
  }
  return CUDA_SUCCESS;
}

CUresult make_free(CUdeviceptr address, OperationPtr* operation) {
  const auto range = memory_registry().find(address);
  if (!range || range->base != address || range->kind != MemoryKind::kGraph) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *operation = std::make_shared<GraphMemoryOperation>(CU_GRAPH_NODE_TYPE_MEM_FREE, address,
                                                      range->bytes, range->device);
  return CUDA_SUCCESS;
}

}  // namespace gpurun::emulated

namespace gpurun::emulated::api {

CUresult cuGraphAddMemAllocNode(CUgraphNode* out, CUgraph graph_handle,
                                const CUgraphNode* dependencies, size_t count,
                                CUDA_MEM_ALLOC_NODE_PARAMS* parameters) {
  GPURUN_ENTER_DRIVER();
  const auto graph = handles().find<Graph>(graph_handle);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (out == nullptr || parameters == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::vector<GraphNodePtr> before;
  GPURUN_TRY(find_nodes(*graph, dependencies, count, &before));
  OperationPtr operation;
  GPURUN_TRY(make_allocation(*graph, parameters, &operation));
  *out = graph->add(std::move(operation), std::move(before))->as<CUgraphNode>();
  return CUDA_SUCCESS;
}

CUresult cuGraphMemAllocNodeGetParams(CUgraphNode handle, CUDA_MEM_ALLOC_NODE_PARAMS* out) {
  GPURUN_ENTER_DRIVER();
  const auto node = handles().find<GraphNode>(handle);
  if (node == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto operation = std::dynamic_pointer_cast<GraphMemoryOperation>(node->operation());
  if (out == nullptr || operation == nullptr ||
      operation->graph_node_type() != CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *out = CUDA_MEM_ALLOC_NODE_PARAMS{};
  out->poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  out->poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  out->poolProps.location.id = operation->device();
  // The list lives as long as the node (manual).
  const std::vector<CUmemAccessDesc>& accesses = operation->accesses();
  out->accessDescs = accesses.empty() ? nullptr : accesses.data();
  out->accessDescCount = accesses.size();
  out->bytesize = operation->bytes();
  out->dptr = operation->address();
  return CUDA_SUCCESS;
}

CUresult cuGraphAddMemFreeNode(CUgraphNode* out, CUgraph graph_handle,
                               const CUgraphNode* dependencies, size_t count, CUdeviceptr address) {
  GPURUN_ENTER_DRIVER();
  const auto graph = handles().find<Graph>(graph_handle);
  if (graph == nullptr || graph->moved()) return CUDA_ERROR_INVALID_VALUE;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::vector<GraphNodePtr> before;
  GPURUN_TRY(find_nodes(*graph, dependencies, count, &before));
  OperationPtr operation;
  GPURUN_TRY(make_free(address, &operation));
  *out = graph->add(std::move(operation), std::move(before))->as<CUgraphNode>();
  return CUDA_SUCCESS;
}

CUresult cuGraphMemFreeNodeGetParams(CUgraphNode handle, CUdeviceptr* address) {
  GPURUN_ENTER_DRIVER();
  const auto node = handles().find<GraphNode>(handle);
  if (node == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto operation = std::dynamic_pointer_cast<GraphMemoryOperation>(node->operation());
  if (address == nullptr || operation == nullptr ||
      operation->graph_node_type() != CU_GRAPH_NODE_TYPE_MEM_FREE) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *address = operation->address();
  return CUDA_SUCCESS;
}

// All values are 64-bit counts of bytes. Nothing is reserved beyond what is used.
CUresult cuDeviceGetGraphMemAttribute(CUdevice ordinal, CUgraphMem_attribute attribute,
                                      void* value) {
  GPURUN_ENTER_DRIVER();
  Device* device = device_at(ordinal);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (value == nullptr || static_cast<unsigned>(attribute) > CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *static_cast<cuuint64_t*>(value) = GraphMemory::bytes_in_use(*device);
  return CUDA_SUCCESS;
}

CUresult cuDeviceSetGraphMemAttribute(CUdevice ordinal, CUgraphMem_attribute attribute,
                                      void* value) {
  GPURUN_ENTER_DRIVER();
  if (device_at(ordinal) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  // Only the high-water marks can be set, to 0 (manual).
  const bool high = attribute == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH ||
                    attribute == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH;
  return value == nullptr || !high || *static_cast<cuuint64_t*>(value) != 0
             ? CUDA_ERROR_INVALID_VALUE
             : CUDA_SUCCESS;
}

CUresult cuDeviceGraphMemTrim(CUdevice ordinal) {
  GPURUN_ENTER_DRIVER();
  return device_at(ordinal) == nullptr ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

CUresult cuUserObjectCreate(CUuserObject* out, void* data, CUhostFn destroy, unsigned int count,
                            unsigned int flags) {
  GPURUN_ENTER_DRIVER();
  if (out == nullptr || destroy == nullptr || count == 0 ||
      flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *out = handles().add(std::make_shared<UserObject>(data, destroy, count))->as<CUuserObject>();
  return CUDA_SUCCESS;
}

CUresult cuUserObjectRetain(CUuserObject handle, unsigned int count) {
  std::shared_ptr<UserObject> object;
  GPURUN_TRY(enter_object(handle, count, &object));
  object->retain(count);
  return CUDA_SUCCESS;
}

CUresult cuUserObjectRelease(CUuserObject handle, unsigned int count) {
  std::shared_ptr<UserObject> object;
  GPURUN_TRY(enter_object(handle, count, &object));
  UserObject::release(object, count);
  return CUDA_SUCCESS;
}

CUresult cuGraphRetainUserObject(CUgraph graph_handle, CUuserObject handle, unsigned int count,
                                 unsigned int flags) {
  std::shared_ptr<UserObject> object;
  GPURUN_TRY(enter_object(handle, count, &object));
  const auto graph = handles().find<Graph>(graph_handle);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if ((flags & ~static_cast<unsigned>(CU_GRAPH_USER_OBJECT_MOVE)) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // With MOVE the graph takes over the caller's own references.
  if ((flags & CU_GRAPH_USER_OBJECT_MOVE) == 0) object->retain(count);
  const UserObject* const key = object.get();
  graph->keep(std::make_shared<UserObjectReference>(std::move(object), count), key);
  return CUDA_SUCCESS;
}

CUresult cuGraphReleaseUserObject(CUgraph graph_handle, CUuserObject handle, unsigned int count) {
  std::shared_ptr<UserObject> object;
  GPURUN_TRY(enter_object(handle, count, &object));
  const auto graph = handles().find<Graph>(graph_handle);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned left = count; left != 0;) {
    const auto kept = std::static_pointer_cast<UserObjectReference>(graph->give_up(object.get()));
    if (kept == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (kept->count() > left) {
      const unsigned rest = kept->count() - left;
      object->retain(rest);
      graph->keep(std::make_shared<UserObjectReference>(object, rest), object.get());
    }
    left -= std::min(left, kept->count());
  }
  return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeSetAttribute(CUgraphNode node, CUkernelNodeAttrID attribute,
                                       const CUkernelNodeAttrValue* value) {
  GPURUN_ENTER_DRIVER();
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return change_kernel(node, attribute, *value);
}

CUresult cuGraphKernelNodeGetAttribute(CUgraphNode handle, CUkernelNodeAttrID attribute,
                                       CUkernelNodeAttrValue* value) {
  GPURUN_ENTER_DRIVER();
  const auto node = handles().find<GraphNode>(handle);
  if (node == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto operation = std::dynamic_pointer_cast<LaunchOperation>(node->operation());
  if (value == nullptr || operation == nullptr) return CUDA_ERROR_INVALID_VALUE;
  GPURUN_TRY(check_attribute(attribute));
  CUkernelNodeAttrValue filled{};
  const KernelLaunch& launch = operation->launch();
  if (attribute == CU_LAUNCH_ATTRIBUTE_COOPERATIVE) {
    filled.cooperative = launch.cooperative;
  } else if (attribute == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) {
    filled.clusterDim = {launch.cluster.x, launch.cluster.y, launch.cluster.z};
  }
  *value = filled;
  return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeCopyAttributes(CUgraphNode destination, CUgraphNode source) {
  for (const auto attribute :
       {CU_LAUNCH_ATTRIBUTE_COOPERATIVE, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION}) {
    CUkernelNodeAttrValue value;
    GPURUN_TRY(api::cuGraphKernelNodeGetAttribute(source, attribute, &value));
    GPURUN_TRY(api::cuGraphKernelNodeSetAttribute(destination, attribute, &value));
  }
  return CUDA_SUCCESS;
}

}  // namespace gpurun::emulated::api
