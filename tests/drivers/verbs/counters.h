// Counters of the verbs double (verbs_double_counts).
#pragma once

#include <cstdint>

#include "tests/drivers/verbs/verbs_double.h"

namespace gpurun::verbs_double {

void count(std::uint64_t verbs_double_counts::*which, std::uint64_t amount = 1) noexcept;

}  // namespace gpurun::verbs_double
