// opaque_text(): one function for each type.
#include "tests/drivers/null/opaque.h"

#include <cstring>
#include <string_view>
#include <vector>

#include "driver_abi/image_length.h"
#include "tests/drivers/argument.h"
#include "tests/drivers/null/api.h"

namespace gpurun::recording {
namespace {

using driver_abi::Row;

constexpr char kOpaque[] = "opaque";

template <typename T>
std::string number(T value) {
  if constexpr (std::is_pointer_v<T>) {
    return hex(reinterpret_cast<std::uintptr_t>(value));
  } else {
    return hex(static_cast<std::uint64_t>(value));
  }
}

// The argument of that type. nullptr: the row has no such parameter.
void* argument_of(const Row& row, void* const* arguments, std::string_view type) {
  for (std::size_t i = 0; i < row.parameters.size(); ++i) {
    if (type == row.parameters[i].type) return devices::pointer_of(arguments, i);
  }
  return nullptr;
}

// Gaps between parameters are 0.
std::string kernel_parameters(CUfunction function, void* const* values) {
  if (values == nullptr) return "null";
  std::vector<unsigned char> block;
  std::size_t offset = 0, bytes = 0;
  for (std::size_t i = 0; null_device::api::cuFuncGetParamInfo(function, i, &offset, &bytes) == 0;
       ++i) {
    block.resize(offset + bytes);
    std::memcpy(block.data() + offset, values[i], bytes);
  }
  return "block" + bytes_text(block.data(), block.size());
}

// CU_LAUNCH_PARAM_BUFFER_POINTER, _BUFFER_SIZE, _END (cuda.h).
std::string packed_parameters(void* const* extra) {
  if (extra == nullptr) return "null";
  const void* block = nullptr;
  std::size_t bytes = 0;
  for (; *extra != nullptr; extra += 2) {
    if (*extra == reinterpret_cast<void*>(1)) block = extra[1];
    if (*extra == reinterpret_cast<void*>(2)) std::memcpy(&bytes, extra[1], sizeof bytes);
  }
  return "block" + bytes_text(block, bytes);
}

std::string launch_config(const CUlaunchConfig* config) {
  if (config == nullptr) return "null";
  std::string text = "{grid " + number(config->gridDimX) + " " + number(config->gridDimY) + " " +
                     number(config->gridDimZ) + " block " + number(config->blockDimX) + " " +
                     number(config->blockDimY) + " " + number(config->blockDimZ) + " shared " +
                     number(config->sharedMemBytes) + " stream " + number(config->hStream);
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    text += " attribute " + number(static_cast<unsigned>(config->attrs[i].id)) +
            bytes_text(&config->attrs[i].value, sizeof config->attrs[i].value);
  }
  return text + "}";
}

// A kernel node's function may be a kernel.
std::string kernel_node(const CUDA_KERNEL_NODE_PARAMS* node) {
  if (node == nullptr) return "null";
  CUfunction function =
      node->func != nullptr ? node->func : reinterpret_cast<CUfunction>(node->kern);
  return "{func " + number(node->func) + " kern " + number(node->kern) + " grid " +
         number(node->gridDimX) + " " + number(node->gridDimY) + " " + number(node->gridDimZ) +
         " block " + number(node->blockDimX) + " " + number(node->blockDimY) + " " +
         number(node->blockDimZ) + " shared " + number(node->sharedMemBytes) + " ctx " +
         number(node->ctx) + " parameters " +
         (node->extra != nullptr ? packed_parameters(node->extra)
                                 : kernel_parameters(function, node->kernelParams)) +
         "}";
}

// A node that allocates memory, without the address that comes out.
std::string graph_memory(const CUDA_MEM_ALLOC_NODE_PARAMS* node) {
  std::string text = "{properties" + bytes_text(&node->poolProps, sizeof node->poolProps) +
                     " bytes " + number(node->bytesize) + " accesses";
  for (std::size_t i = 0; i < node->accessDescCount; ++i) {
    text += bytes_text(&node->accessDescs[i], sizeof node->accessDescs[i]);
  }
  return text + "}";
}

std::string memory_operations(const CUDA_BATCH_MEM_OP_NODE_PARAMS* node) {
  std::string text = "{ctx " + number(node->ctx) + " flags " + number(node->flags) + " operations";
  for (unsigned i = 0; i < node->count; ++i) {
    text += bytes_text(&node->paramArray[i], sizeof node->paramArray[i]);
  }
  return text + "}";
}

// A node of any type. Only child graphs reach a driver in this form.
std::string any_node(const CUgraphNodeParams* node) {
  if (node->type != CU_GRAPH_NODE_TYPE_GRAPH) return kOpaque;
  return "{graph " + number(node->graph.graph) + " ownership " +
         number(static_cast<unsigned>(node->graph.ownership)) + "}";
}

// Of host memory only its presence is recorded, because its address concerns only the caller.
std::string copy_side(CUmemorytype type, const void* host, CUdeviceptr device, CUarray array,
                      std::size_t x, std::size_t y, std::size_t z, std::size_t pitch,
                      std::size_t height) {
  return "type " + number(static_cast<unsigned>(type)) + (host == nullptr ? "" : " host") +
         " device " + number(device) + " array " + number(array) + " at " + number(x) + " " +
         number(y) + " " + number(z) + " pitch " + number(pitch) + " height " + number(height);
}

std::string copy_of_box(const CUDA_MEMCPY3D* copy) {
  return "{from " +
         copy_side(copy->srcMemoryType, copy->srcHost, copy->srcDevice, copy->srcArray,
                   copy->srcXInBytes, copy->srcY, copy->srcZ, copy->srcPitch, copy->srcHeight) +
         " to " +
         copy_side(copy->dstMemoryType, copy->dstHost, copy->dstDevice, copy->dstArray,
                   copy->dstXInBytes, copy->dstY, copy->dstZ, copy->dstPitch, copy->dstHeight) +
         " bytes " + number(copy->WidthInBytes) + " " + number(copy->Height) + " " +
         number(copy->Depth) + "}";
}

// The text covers the bytes that are loaded, without the wrapper around them.
std::string image_text(const void* code) {
  if (code == nullptr) return "null";
  const auto image = driver_abi::image_at(code);
  if (!image.ok()) return "no image";
  std::string text = "image";
  for (const ByteView piece : image->pieces) text += bytes_text(piece.data(), piece.size());
  return text;
}

// Values are numbers. Of logs only their presence is recorded, because they point into the caller.
std::string jit_values(const Row& row, void* const* arguments, void* const* values) {
  if (values == nullptr) return "null";
  const CUjit_option* options = nullptr;
  std::uint64_t count = 0;
  for (std::size_t i = 0; i < row.parameters.size(); ++i) {
    if (std::string_view(row.parameters[i].type) != "CUjit_option*") continue;
    options = static_cast<const CUjit_option*>(devices::pointer_of(arguments, i));
    count = devices::count_of(row, arguments, i);
  }
  std::string text = "{";
  for (std::uint64_t i = 0; options != nullptr && i < count; ++i) {
    const bool place =
        options[i] == CU_JIT_INFO_LOG_BUFFER || options[i] == CU_JIT_ERROR_LOG_BUFFER;
    text += (i == 0 ? "" : " ") + (place ? std::string(kOpaque) : number(values[i]));
  }
  return text + "}";
}

std::string pool_attribute(const Row& row, void* const* arguments, const void* value) {
  if (value == nullptr) return "null";
  std::uint32_t attribute = 0;
  for (std::size_t i = 0; i < row.parameters.size(); ++i) {
    if (std::string_view(row.parameters[i].type) == "CUmemPool_attribute") {
      std::memcpy(&attribute, arguments[i], sizeof attribute);
    }
  }
  // Manual, "CUmemPool_attribute": the first three are int, the others cuuint64_t.
  return bytes_text(value, attribute <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES ? 4 : 8);
}

}  // namespace

std::string opaque_text(const Row& row, void* const* arguments, std::size_t index) {
  const std::string_view type = row.parameters[index].type;
  const std::string_view name = row.parameters[index].name;
  const void* place = devices::pointer_of(arguments, index);
  if (place == nullptr) return "null";
  if (row.parameters[index].direction == driver_abi::Direction::kOut) return kOpaque;
  if (type == "const CUlaunchConfig*") {
    return launch_config(static_cast<const CUlaunchConfig*>(place));
  }
  if (type == "const CUDA_KERNEL_NODE_PARAMS*") {
    return kernel_node(static_cast<const CUDA_KERNEL_NODE_PARAMS*>(place));
  }
  if (type == "CUDA_MEM_ALLOC_NODE_PARAMS*") {
    return graph_memory(static_cast<const CUDA_MEM_ALLOC_NODE_PARAMS*>(place));
  }
  if (type == "const CUDA_BATCH_MEM_OP_NODE_PARAMS*") {
    return memory_operations(static_cast<const CUDA_BATCH_MEM_OP_NODE_PARAMS*>(place));
  }
  if (type == "CUgraphNodeParams*") return any_node(static_cast<const CUgraphNodeParams*>(place));
  if (type == "const CUDA_MEMCPY3D*") return copy_of_box(static_cast<const CUDA_MEMCPY3D*>(place));
  auto* const* pointers = static_cast<void* const*>(place);
  if (name == "kernelParams") {
    auto* function = static_cast<CUfunction>(argument_of(row, arguments, "CUfunction"));
    return kernel_parameters(function, pointers);
  }
  if (name == "extra") return packed_parameters(pointers);
  if (name == "image" || name == "code" || name == "fatCubin") return image_text(place);
  if (name == "optionValues" || name == "jitOptionsValues") {
    return jit_values(row, arguments, pointers);
  }
  if (name == "value" && type == "void*") return pool_attribute(row, arguments, place);
  return kOpaque;
}

}  // namespace gpurun::recording
