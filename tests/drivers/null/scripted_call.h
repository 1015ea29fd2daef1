// ScriptedCall: a call of the null device where a script changes or records it. Without a script,
// an entry point only reads a flag before its work.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "driver_abi/cuda_abi.h"
#include "driver_abi/row.h"
#include "tests/drivers/null/record.h"
#include "tests/drivers/script.h"

namespace gpurun::null_device {

enum class ScriptState : std::uint8_t { kUnread, kAbsent, kPresent };
inline std::atomic<ScriptState> g_script_state{ScriptState::kUnread};

// nullptr: no script lies beside the library. Reads it at the first call.
const devices::Script* script();

inline bool is_scripted() {
  if (g_script_state.load(std::memory_order_acquire) == ScriptState::kAbsent) [[likely]] {
    return false;
  }
  return script() != nullptr;
}

// Lives for one call, in a device that is scripted. Any thread may use it.
class ScriptedCall {
 public:
  // Borrows both until the end of the call. Applies the rules before the work.
  ScriptedCall(const driver_abi::Row& row, void* const* arguments);
  ~ScriptedCall();
  ScriptedCall(const ScriptedCall&) = delete;
  ScriptedCall& operator=(const ScriptedCall&) = delete;
  // True: answer() ends the call. Otherwise the work follows, and then done().
  bool is_answered() const noexcept { return answer_.has_value(); }
  CUresult answer();
  CUresult done(CUresult result);

 private:
  const driver_abi::Row& row_;
  void* const* arguments_;
  std::optional<recording::Call> record_;
  std::optional<int> answer_;
};

}  // namespace gpurun::null_device
