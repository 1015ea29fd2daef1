// Occupancy entries: cuOccupancy*, answered from the attributes of device and kernel (CUDA Driver
// API manual, "Occupancy"). Only questions about clusters go to the worker, because each device
// places clusters in its own way.
#include "client/interpose/modules/occupancy.h"

#include <cstring>

#include "client/interpose/capture/stream_argument.h"
#include "client/interpose/custom.h"
#include "client/interpose/modules/launch.h"
#include "client/interpose/modules/objects.h"

namespace gpurun::client::interpose {
namespace modules {

driver_abi::OccupancyDevice occupancy_of(const Device& from) {
  driver_abi::OccupancyDevice device;
  device.warp_threads = from.attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE);
  if (device.warp_threads <= 0) device.warp_threads = driver_abi::kWarpThreads;
  device.capability_major = from.attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  device.multiprocessors = from.attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  device.threads_per_block = from.attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  device.threads_per_multiprocessor =
      from.attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
  device.blocks_per_multiprocessor =
      from.attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR);
  device.registers_per_block = from.attribute(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK);
  device.registers_per_multiprocessor =
      from.attribute(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR);
  device.shared_per_multiprocessor =
      from.attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
  device.shared_per_block_optin =
      from.attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
  device.shared_reserved_per_block =
      from.attribute(CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK);
  return device;
}

driver_abi::OccupancyFunction occupancy_of(const Function& from) {
  driver_abi::OccupancyFunction function;
  function.registers = from.attribute(CU_FUNC_ATTRIBUTE_NUM_REGS);
  function.threads_max = from.attribute(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  function.static_shared_bytes = from.attribute(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
  if (from.info.knows_attribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)) {
    function.dynamic_shared_bytes_max =
        from.attribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
  }
  return function;
}

}  // namespace modules

namespace {

using modules::Function;

struct Question {
  driver_abi::OccupancyDevice device;
  driver_abi::OccupancyFunction function;

  int ask(CUfunction given) {
    EntryContext here;
    if (const int result = here.enter_context(); result != 0) return result;
    Function* found = nullptr;
    if (const int result = modules::find_function(here, given, &found); result != 0) return result;
    const Device* of = here.devices().device(here.context->ordinal);
    if (of == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    device = modules::occupancy_of(*of);
    function = modules::occupancy_of(*found);
    return 0;
  }
};

// The worker asks its driver. Function and configuration travel like a launch's.
CUresult ask_cluster(std::uint16_t row, int* answer, CUfunction func,
                     const CUlaunchConfig* config) {
  if (answer == nullptr || config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  EntryContext here;
  if (const int result = here.enter_context(); result != 0) return cuda(result);
  Function* function = nullptr;
  if (const int result = modules::find_function(here, func, &function); result != 0) {
    return cuda(result);
  }
  protocol::LaunchAttribute attributes[protocol::kLaunchAttributesMax];
  unsigned attribute_count = 0;
  if (const int result =
          modules::pack_attributes(config->attrs, config->numAttrs, attributes, &attribute_count);
      result != 0) {
    return cuda(result);
  }
  protocol::LaunchPayload payload;
  payload.function = function->handle;
  payload.grid[0] = config->gridDimX, payload.grid[1] = config->gridDimY;
  payload.grid[2] = config->gridDimZ;
  payload.block[0] = config->blockDimX, payload.block[1] = config->blockDimY;
  payload.block[2] = config->blockDimZ;
  payload.shared_bytes = config->sharedMemBytes;
  payload.attribute_count = attribute_count;
  // The stream implies its context, and with it a part of the device.
  Handle stream = 0;
  if (const int result = resolve_stream(here, config->hStream, &stream); result != 0)
    return cuda(result);
  CallSite site = here.stream_site(stream);
  site.opcode = row;
  site.form = protocol::Form::kRaw;
  const ByteView parts[] = {bytes_of(payload), byte_view(static_cast<const void*>(attributes),
                                                         attribute_count * sizeof attributes[0])};
  Reply reply;
  const int result =
      here.session().call(*here.lane, site, std::span<const ByteView>(parts), &reply);
  if (result == 0 && reply.payload.size() != sizeof *answer) return CUDA_ERROR_UNKNOWN;
  if (result == 0) std::memcpy(answer, reply.payload.data(), sizeof *answer);
  return cuda(result);
}

}  // namespace

namespace custom {

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* numBlocks, CUfunction func,
                                                              int blockSize, size_t dynamicSMemSize,
                                                              unsigned int flags) {
  if (numBlocks == nullptr || blockSize <= 0 || (flags & ~CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Question question;
  if (const int result = question.ask(func); result != 0) return cuda(result);
  *numBlocks =
      driver_abi::max_active_blocks(question.device, question.function, blockSize, dynamicSMemSize);
  return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* numBlocks, CUfunction func, int blockSize,
                                                     size_t dynamicSMemSize) {
  return custom::cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(numBlocks, func, blockSize,
                                                                      dynamicSMemSize, 0);
}

CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t* dynamicSmemSize, CUfunction func,
                                                 int numBlocks, int blockSize) {
  if (dynamicSmemSize == nullptr || numBlocks <= 0 || blockSize <= 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Question question;
  if (const int result = question.ask(func); result != 0) return cuda(result);
  const auto bytes = driver_abi::available_dynamic_shared(question.device, question.function,
                                                          numBlocks, blockSize);
  if (!bytes) return CUDA_ERROR_INVALID_VALUE;
  *dynamicSmemSize = *bytes;
  return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int* minGridSize, int* blockSize,
                                                   CUfunction func,
                                                   CUoccupancyB2DSize blockSizeToDynamicSMemSize,
                                                   size_t dynamicSMemSize, int blockSizeLimit,
                                                   unsigned int flags) {
  if (minGridSize == nullptr || blockSize == nullptr || blockSizeLimit < 0 ||
      (flags & ~CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Question question;
  if (const int result = question.ask(func); result != 0) return cuda(result);
  driver_abi::SharedNeed need{blockSizeToDynamicSMemSize, dynamicSMemSize};
  const driver_abi::PotentialBlock best = driver_abi::best_block(
      question.device, question.function, &driver_abi::SharedNeed::of, &need, blockSizeLimit);
  *minGridSize = best.grid_blocks;
  *blockSize = best.block_threads;
  return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxPotentialBlockSize(int* minGridSize, int* blockSize, CUfunction func,
                                          CUoccupancyB2DSize blockSizeToDynamicSMemSize,
                                          size_t dynamicSMemSize, int blockSizeLimit) {
  return custom::cuOccupancyMaxPotentialBlockSizeWithFlags(
      minGridSize, blockSize, func, blockSizeToDynamicSMemSize, dynamicSMemSize, blockSizeLimit, 0);
}

CUresult cuOccupancyMaxActiveClusters(int* numClusters, CUfunction func,
                                      const CUlaunchConfig* config) {
  return ask_cluster(opcode::cuOccupancyMaxActiveClusters, numClusters, func, config);
}

CUresult cuOccupancyMaxPotentialClusterSize(int* clusterSize, CUfunction func,
                                            const CUlaunchConfig* config) {
  return ask_cluster(opcode::cuOccupancyMaxPotentialClusterSize, clusterSize, func, config);
}

}  // namespace custom
}  // namespace gpurun::client::interpose
