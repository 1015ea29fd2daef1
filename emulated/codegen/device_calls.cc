// Device calls: the functions that CUDA's device runtime (libcudadevrt) leaves to the driver. They
// are launches from kernels, their streams and events, and queries about kernels and the device.
#include <algorithm>

#include "emulated/codegen/function_builder.h"
#include "emulated/codegen/runtime_calls.h"
#include "emulated/runtime/device_abi.h"

namespace gpurun::emulated {
namespace {

using Kind = ptx::Operand::Kind;

constexpr unsigned kDim3Bits = 96;
constexpr unsigned kArgumentsMax = 6;

struct DeviceCallPrototype {
  std::string_view name;
  DeviceCall call;
  unsigned result_bits;
  unsigned argument_bits[kArgumentsMax];
};

// As libcudadevrt of CUDA 13.0 declares them.
constexpr DeviceCallPrototype kDeviceCalls[] = {
    {"SetLastError", DeviceCall::kSetLastError, 32, {32}},
    {"GetLastError", DeviceCall::kGetLastError, 32, {}},
    {"GetParameterBuffer", DeviceCall::kGetParameterBuffer, 64, {32, 32}},
    {"GetParameterBufferV2", DeviceCall::kGetParameterBufferV2, 64, {64, kDim3Bits, kDim3Bits, 32}},
    {"LaunchDevice", DeviceCall::kLaunchDevice, 32, {64, 64, 64, 64, 32, 64}},
    {"LaunchDeviceV2", DeviceCall::kLaunchDeviceV2, 32, {64, 64}},
    {"StreamCreate", DeviceCall::kStreamCreate, 32, {64, 32}},
    {"StreamDestroy", DeviceCall::kStreamDestroy, 32, {64}},
    {"StreamWaitEvent", DeviceCall::kStreamWaitEvent, 32, {64, 64, 32}},
    {"EventCreate", DeviceCall::kEventCreate, 32, {64, 32}},
    {"EventRecord", DeviceCall::kEventRecord, 32, {64, 64}},
    {"EventDestroy", DeviceCall::kEventDestroy, 32, {64}},
    {"FuncGetAttribute", DeviceCall::kFuncGetAttribute, 32, {64, 32, 64}},
    {"DeviceGetAttribute", DeviceCall::kDeviceGetAttribute, 32, {64, 32, 32}},
    {"GetDeviceCount", DeviceCall::kGetDeviceCount, 32, {64}},
    {"GetDevice", DeviceCall::kGetDevice, 32, {64}},
    {"GetLimit", DeviceCall::kGetLimit, 32, {64, 32}},
    {"GetCacheConfig", DeviceCall::kGetCacheConfig, 32, {64}},
    {"GetSharedMemConfig", DeviceCall::kGetSharedMemConfig, 32, {64}},
    {"MaxActiveBlocksPerMultiprocessor", DeviceCall::kMaxActiveBlocks, 32, {64, 64, 32, 64}},
    // Its flags say which kernels of capability 5.x may use the cache. They make no difference
    // here.
    {"MaxActiveBlocksPerMultiprocessorWithFlags",
     DeviceCall::kMaxActiveBlocks,
     32,
     {64, 64, 32, 64, 32}},
};

// nvcc declares this function without a prefix, and no library defines it.
constexpr DeviceCallPrototype kSetConditional = {
    "cudaGraphSetConditional", DeviceCall::kGraphSetConditional, 0, {64, 32}};

// Programs for the first form of dynamic parallelism (CUDA_FORCE_CDP1_IF_SUPPORTED) call cnp*. All
// others call __cuda_syscall_cnpv2*. Both are the same, because no kernel can wait for its children
// any more.
const DeviceCallPrototype* find_device_call(std::string_view name) {
  if (name == kSetConditional.name) return &kSetConditional;
  constexpr std::string_view kSystem = "__cuda_syscall_";
  if (name.starts_with(kSystem)) name.remove_prefix(kSystem.size());
  if (!name.starts_with("cnp")) return nullptr;
  name.remove_prefix(name.starts_with("cnpv2") ? 5 : 3);
  const auto* const found =
      std::find_if(std::begin(kDeviceCalls), std::end(kDeviceCalls),
                   [name](const DeviceCallPrototype& known) { return known.name == name; });
  return found == std::end(kDeviceCalls) ? nullptr : found;
}

}  // namespace

bool is_device_call(std::string_view function) { return find_device_call(function) != nullptr; }

bool is_device_runtime(std::string_view function) {
  return function.starts_with("cuda") || function.starts_with("__cudaCDP");
}

// The words of one argument, each as 64 bits.
void FunctionBuilder::append_words(const ptx::Operand& argument, unsigned bits,
                                   llvm::SmallVectorImpl<Value*>& words) {
  const bool is_variable = argument.kind == Kind::kVariable;
  Value* const place = is_variable ? variable_pointer(argument.index) : nullptr;
  if (is_variable ? place == nullptr || function().variables[argument.index].byte_size() * 8 < bits
                  : bits == kDim3Bits) {
    return refuse("an argument is smaller than its parameter");
  }
  if (bits == 64 || !is_variable) {
    Value* const value = is_variable ? ir.CreateAlignedLoad(int_type(bits), place, llvm::Align(1))
                                     : read(argument, bits);
    words.push_back(ir.CreateZExt(value, int_type(64)));
    return;
  }
  for (unsigned word = 0; word < bits / 32; ++word) {
    Value* const at = ir.CreateConstGEP1_64(int_type(8), place, word * 4);
    words.push_back(
        ir.CreateZExt(ir.CreateAlignedLoad(int_type(32), at, llvm::Align(1)), int_type(64)));
  }
}

void FunctionBuilder::call_device_runtime(const Operation& op) {
  const DeviceCallPrototype& call = *find_device_call(operand(op, 0).name);
  const auto& arguments = op.instruction.arguments;
  const auto count = static_cast<std::size_t>(
      std::find(std::begin(call.argument_bits), std::end(call.argument_bits), 0u) -
      std::begin(call.argument_bits));
  if (arguments.size() != count ||
      op.instruction.results.size() > (call.result_bits == 0 ? 0 : 1)) {
    return refuse("another number of arguments than the function has");
  }
  llvm::SmallVector<Value*, 12> words;
  for (std::size_t i = 0; i < count; ++i) {
    append_words(arguments[i], call.argument_bits[i], words);
    if (failed()) return;
  }
  auto* const type = llvm::ArrayType::get(int_type(64), std::max<std::size_t>(1, words.size()));
  Value* const list = stack_slot(type);
  for (std::size_t i = 0; i < words.size(); ++i) {
    ir.CreateAlignedStore(words[i], ir.CreateConstGEP1_64(int_type(64), list, i), llvm::Align(8));
  }
  Value* const result = call_runtime("device_call", int_type(64),
                                     {ir.getInt32(static_cast<std::uint32_t>(call.call)), list});
  if (call.result_bits == 0) return;
  write_call_result(op, ir.CreateTrunc(result, int_type(call.result_bits)));
}

}  // namespace gpurun::emulated
