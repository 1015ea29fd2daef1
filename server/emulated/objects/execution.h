// What executes kernels in this process: one compiler, and one engine for each device.
#pragma once

#include <memory>

#include "server/emulated/engine/engine.h"
#include "server/emulated/jit/compiler.h"

namespace gpurun::emulated {

// The process's compiler, made at the first call; immortal. nullptr when it cannot be had, which
// is logged once. Any thread.
Compiler* compiler();

// A new engine as the settings say; nullptr (logged) when threads cannot be had.
std::unique_ptr<Engine> make_engine();

}  // namespace gpurun::emulated
