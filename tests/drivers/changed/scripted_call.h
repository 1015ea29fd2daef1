// ScriptedCall: a call of the changed device, which is the emulated device with a script
// (tests/drivers/script.h). A test may also ask for refusals while it runs: in the same process by
// gpurun_test_refuse(), or across the wire (tests/drivers/changed/refusals.h).
#pragma once

#include <cstdint>
#include <optional>

#include "driver_abi/cuda_abi.h"
#include "driver_abi/row.h"

namespace gpurun::changed_device {

// The emulated device's function of that row.
void* emulated_function(std::uint16_t opcode);
template <typename Function>
Function* emulated(std::uint16_t opcode, Function*) {
  return reinterpret_cast<Function*>(emulated_function(opcode));
}

// Lives for one call. Any thread may use it.
class ScriptedCall {
 public:
  // Borrows both until the end of the call. Applies the rules before the work.
  ScriptedCall(const driver_abi::Row& row, void* const* arguments);
  // True: answer() ends the call. Otherwise the work follows, and then done().
  bool is_answered() const noexcept { return answer_.has_value(); }
  CUresult answer() const { return static_cast<CUresult>(*answer_); }
  CUresult done(CUresult result);

 private:
  const driver_abi::Row& row_;
  void* const* arguments_;
  std::optional<int> answer_;
};

}  // namespace gpurun::changed_device

#define EXPORTED extern "C" __attribute__((visibility("default")))

// Refuses the next `calls` calls of the function with `code`.
EXPORTED void gpurun_test_refuse(const char* function, int code, int calls);
// The next cuGraphAddChildGraphNode returns the node that the last one made, as NVIDIA's driver may
// after the end of that node's graph.
EXPORTED void gpurun_test_use_child_node_again();

#undef EXPORTED
