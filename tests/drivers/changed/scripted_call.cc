// ScriptedCall: applies the refusals that tests ask for, and the rules of the script.
#include "tests/drivers/changed/scripted_call.h"

#include <dlfcn.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>

#include "driver_abi/opcodes.h"
#include "tests/drivers/argument.h"
#include "tests/drivers/changed/refusals.h"
#include "tests/drivers/script.h"

namespace gpurun::changed_device {
namespace {

namespace opcode = driver_abi::opcode;
using driver_abi::Row;

constexpr std::size_t kOpcodes = 2048;

struct Refusal {
  std::atomic<int> left{0};
  std::atomic<int> code{0};
};
std::array<Refusal, kOpcodes> g_refusals;  // By opcode.

void refuse(const char* function, int code, int calls) {
  const Row* const row = driver_abi::find_row(function);
  if (row == nullptr) {
    std::fprintf(stderr, "changed device: cannot refuse %s\n", function);
    std::abort();
  }
  g_refusals[row->opcode].code = code;
  g_refusals[row->opcode].left = calls;
}

std::optional<int> refusal(std::uint16_t opcode) {
  Refusal& of = g_refusals[opcode];
  int left = of.left.load();
  while (left > 0 && !of.left.compare_exchange_weak(left, left - 1)) {
  }
  return left > 0 ? std::optional(of.code.load()) : std::nullopt;
}

// The function also runs, because the memory belongs to the program.
void look_for_request(const Row& row, void* const* arguments) {
  const auto value =
      static_cast<unsigned>(devices::integer_at(arguments[1], row.parameters[1].element_bytes));
  const auto count = devices::integer_at(arguments[2], row.parameters[2].element_bytes);
  if ((value & kRefusalMask) != kRefusalMark) return;
  const unsigned function = value >> kRefusalFunctionShift & 0xff;
  if (function >= std::size(kRefusable)) return;
  refuse(kRefusable[function], static_cast<int>(value & 0xffff), static_cast<int>(count));
}

std::atomic<CUgraphNode> g_last_child{nullptr};
std::atomic<CUgraphNode> g_child_again{nullptr};  // Returned once more, so the device may lack it.
std::atomic<bool> g_again{false};

CUgraphNode* child_node(void* const* arguments) {
  return static_cast<CUgraphNode*>(devices::pointer_of(arguments, 0));
}

const devices::Script* script() {
  static const devices::Script* const script = devices::Script::beside_this_library(false);
  return script;
}

std::optional<int> answer_of(const Row& row, void* const* arguments) {
  switch (row.opcode) {
    case opcode::cuMemsetD32Async:
      look_for_request(row, arguments);
      break;
    case opcode::cuGraphAddChildGraphNode:
      if (!g_again.exchange(false)) break;
      *child_node(arguments) = g_last_child;
      g_child_again = g_last_child.load();
      return CUDA_SUCCESS;
    case opcode::cuGraphNodeGetType:
      if (g_child_again == nullptr || devices::pointer_of(arguments, 0) != g_child_again) break;
      *static_cast<CUgraphNodeType*>(devices::pointer_of(arguments, 1)) = CU_GRAPH_NODE_TYPE_GRAPH;
      return CUDA_SUCCESS;
    default:
      break;
  }
  if (const auto refused = refusal(row.opcode)) return refused;
  return script() == nullptr ? std::nullopt : script()->before(row, arguments);
}

}  // namespace

void* emulated_function(std::uint16_t opcode) {
  static const auto functions = [] {
    std::array<void*, kOpcodes> all{};
    for (const Row& row : driver_abi::rows()) {
      all.at(row.opcode) = dlsym(RTLD_NEXT, row.symbol);
      if (all[row.opcode] != nullptr) continue;
      std::fprintf(stderr, "changed device: the emulated device lacks %s\n", row.symbol);
      std::abort();
    }
    return all;
  }();
  return functions[opcode];
}

ScriptedCall::ScriptedCall(const Row& row, void* const* arguments)
    : row_(row), arguments_(arguments), answer_(answer_of(row, arguments)) {}

CUresult ScriptedCall::done(CUresult result) {
  if (result != CUDA_SUCCESS) return result;
  if (row_.opcode == opcode::cuGraphAddChildGraphNode) g_last_child = *child_node(arguments_);
  if (script() != nullptr) script()->after(row_, arguments_);
  return result;
}

}  // namespace gpurun::changed_device

void gpurun_test_refuse(const char* function, int code, int calls) {
  gpurun::changed_device::refuse(function, code, calls);
}
void gpurun_test_use_child_node_again() { gpurun::changed_device::g_again = true; }
