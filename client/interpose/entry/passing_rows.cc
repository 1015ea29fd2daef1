// Passing rows: the list.
#include "client/interpose/entry/passing_rows.h"

#include "driver_abi/opcodes.h"

namespace gpurun::client::interpose {

namespace opcode = driver_abi::opcode;

bool passes_streams(std::uint16_t row) {
  switch (row) {
    case opcode::cuArrayGetMemoryRequirements:
    case opcode::cuArrayGetPlane:
    case opcode::cuArrayGetSparseProperties:
    case opcode::cuCtxGetLimit:
    case opcode::cuDeviceGetDefaultMemPool:
    case opcode::cuDeviceGetMemPool:
    case opcode::cuDeviceSetGraphMemAttribute:
    case opcode::cuDeviceSetMemPool:
    case opcode::cuEventElapsedTime_v2:
    case opcode::cuGraphAddChildGraphNode:
    case opcode::cuGraphAddDependencies:
    case opcode::cuGraphAddDependencies_v2:
    case opcode::cuGraphAddEmptyNode:
    case opcode::cuGraphAddEventRecordNode:
    case opcode::cuGraphAddEventWaitNode:
    case opcode::cuGraphAddMemFreeNode:
    case opcode::cuGraphAddMemsetNode:
    case opcode::cuGraphChildGraphNodeGetGraph:
    case opcode::cuGraphClone:
    case opcode::cuGraphCreate:
    case opcode::cuGraphEventRecordNodeGetEvent:
    case opcode::cuGraphEventRecordNodeSetEvent:
    case opcode::cuGraphEventWaitNodeGetEvent:
    case opcode::cuGraphEventWaitNodeSetEvent:
    case opcode::cuGraphExecGetFlags:
    case opcode::cuGraphGetEdges:
    case opcode::cuGraphGetEdges_v2:
    case opcode::cuGraphGetNodes:
    case opcode::cuGraphGetRootNodes:
    case opcode::cuGraphInstantiateWithFlags:
    case opcode::cuGraphInstantiate_v2:
    case opcode::cuGraphKernelNodeCopyAttributes:
    case opcode::cuGraphKernelNodeGetAttribute:
    case opcode::cuGraphKernelNodeSetAttribute:
    case opcode::cuGraphMemsetNodeGetParams:
    case opcode::cuGraphMemsetNodeSetParams:
    case opcode::cuGraphNodeFindInClone:
    case opcode::cuGraphNodeGetDependencies:
    case opcode::cuGraphNodeGetDependencies_v2:
    case opcode::cuGraphNodeGetDependentNodes:
    case opcode::cuGraphNodeGetDependentNodes_v2:
    case opcode::cuGraphNodeGetType:
    case opcode::cuGraphReleaseUserObject:
    case opcode::cuGraphRemoveDependencies:
    case opcode::cuGraphRemoveDependencies_v2:
    case opcode::cuGraphRetainUserObject:
    case opcode::cuMemAddressReserve:
    case opcode::cuMemGetAccess:
    case opcode::cuMemGetAllocationGranularity:
    case opcode::cuMemGetAllocationPropertiesFromHandle:
    case opcode::cuMemGetDefaultMemPool:
    case opcode::cuMemGetMemPool:
    case opcode::cuMemMap:
    case opcode::cuMemPoolCreate:
    case opcode::cuMemPoolSetAccess:
    case opcode::cuMemRetainAllocationHandle:
    case opcode::cuMemSetAccess:
    case opcode::cuMemSetMemPool:
    case opcode::cuMipmappedArrayGetMemoryRequirements:
    case opcode::cuMipmappedArrayGetSparseProperties:
    case opcode::cuUserObjectRelease:
    case opcode::cuUserObjectRetain:
      return true;
    default:
      return false;
  }
}

}  // namespace gpurun::client::interpose
