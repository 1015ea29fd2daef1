// GeneratedCall: one call of a generated row, from the program's arguments to its outputs. Handles
// are checked and minted, devices get the worker's numbers, and the row decides the rest.
#pragma once

#include "driver_abi/row.h"

namespace gpurun::client::interpose {

// Whether the values of arguments are checked (argument_rules.h). A test that carries any values
// through any row skips these checks.
enum class Rules : std::uint8_t { kApply, kSkip };

// `arguments` as call_generated() takes them. Returns a CUresult.
int run_generated(const driver_abi::Row& row, void* const* arguments, Rules rules = Rules::kApply);

}  // namespace gpurun::client::interpose
