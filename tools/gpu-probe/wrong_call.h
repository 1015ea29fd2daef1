// Wrong calls as data: which function, how it is wrong, and what the manual says happens. The probe
// makes each in a process of its own; tests make the same ones to drivers of ours.
//
// The manual lists a function's return values and only sometimes says when each occurs: `expected`
// is the listed value whose description fits. What a real driver answers is what counts, and is
// what the probe is for.
#pragma once

#include <cstring>
#include <span>

#include "driver.h"

namespace gpurun::probe {

// A stage with room for outputs that nobody reads.
struct WrongStage : Stage {
  using Stage::Stage;
  // Zeros, 8 KiB of them, aligned for everything.
  template <typename T>
  T* out() {
    return reinterpret_cast<T*>(scratch);
  }
  // A structure of zeros to fill in.
  template <typename T>
  T* zeroed() {
    std::memset(scratch + 8192, 0, 8192);
    return reinterpret_cast<T*>(scratch + 8192);
  }
  alignas(64) char scratch[16384] = {};
};

inline constexpr int kNotInTheManual = -1;

struct WrongCall {
  const char* function;
  const char* how;
  int expected;        // CUresult, or kNotInTheManual.
  const char* source;  // Of `expected`: module of the CUDA Driver API manual. "" without.
  Level level;         // What must exist before the call.
  CUresult (*make)(WrongStage& s);
};

// By subject; each list is in a file of its own.
std::span<const WrongCall> wrong_context_calls();
std::span<const WrongCall> wrong_memory_calls();
std::span<const WrongCall> wrong_copy_calls();
std::span<const WrongCall> wrong_stream_calls();
std::span<const WrongCall> wrong_module_calls();
std::span<const WrongCall> wrong_graph_calls();

inline constexpr unsigned kWrongCallLists = 6;
std::span<const WrongCall> wrong_calls(unsigned list);

}  // namespace gpurun::probe

// WRONG(function, how, code, source, level, (arguments)): one call. In the arguments `s` is the
// stage. WRONG_AFTER has statements that run before.
#define WRONG(function, how, code, source, level, arguments)                        \
  {                                                                                 \
#function, how, code, source, Level::level,                                     \
        [](WrongStage & s) -> CUresult { return CU(s.driver, function) arguments; } \
  }
#define WRONG_AFTER(function, how, code, source, level, before, arguments)                 \
  {                                                                                        \
#function, how, code, source, Level::level,                                            \
        [](WrongStage & s) -> CUresult { before return CU(s.driver, function) arguments; } \
  }
