// ScriptedCall: applies the rules of the script around the work of a call.
#include "tests/drivers/null/scripted_call.h"

#include "tests/drivers/null/entry.h"

namespace gpurun::null_device {

const devices::Script* script() {
  static const devices::Script* const script = [] {
    const devices::Script* const found = devices::Script::beside_this_library(true);
    if (found != nullptr && found->records()) g_fill_with_pattern = true;
    g_script_state.store(found == nullptr ? ScriptState::kAbsent : ScriptState::kPresent,
                         std::memory_order_release);
    return found;
  }();
  return script;
}

ScriptedCall::ScriptedCall(const driver_abi::Row& row, void* const* arguments)
    : row_(row), arguments_(arguments) {
  if (script()->records()) record_.emplace(row, arguments);
  answer_ = script()->before(row, arguments);
}

ScriptedCall::~ScriptedCall() = default;

CUresult ScriptedCall::answer() {
  const auto result = static_cast<CUresult>(*answer_);
  return record_.has_value() ? record_->done(result) : result;
}

CUresult ScriptedCall::done(CUresult result) {
  if (result == CUDA_SUCCESS) script()->after(row_, arguments_);
  return record_.has_value() ? record_->done(result) : result;
}

}  // namespace gpurun::null_device
