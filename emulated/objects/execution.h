// Execution: the objects that execute kernels in this process: one compiler, and one engine per
// device.
#pragma once

#include <memory>

#include "emulated/engine/engine.h"
#include "emulated/jit/compiler.h"

namespace gpurun::emulated {

// The process's compiler. It is made at the first call and never destroyed. nullptr, logged once,
// when it cannot be had. Any thread.
Compiler* compiler();

// A new engine, by the settings. nullptr (logged) when threads cannot be had.
std::unique_ptr<Engine> make_engine();

}  // namespace gpurun::emulated
