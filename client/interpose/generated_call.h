// GeneratedCall: one call of a generated row, from the program's arguments to its outputs: handles
// are checked and minted, devices get the worker's numbers, and the row says the rest.
#pragma once

#include "driver_abi/row.h"

namespace gpurun::client::interpose {

// Whether what the arguments hold is looked at (argument_rules.h): a test that carries any values
// through any row skips that.
enum class Rules : std::uint8_t { kApply, kSkip };

// `arguments` as call_generated() takes them. A CUresult.
int run_generated(const driver_abi::Row& row, void* const* arguments, Rules rules = Rules::kApply);

}  // namespace gpurun::client::interpose
