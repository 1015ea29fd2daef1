// Parser of one key and value of GPURUN_EMULATED, for code that checks whether the emulated device
// accepts them.
#pragma once

#include <string_view>

#include "emulated/settings.h"

namespace gpurun::emulated {

// False, and `*settings` is unchanged: the key is unknown, or the value is out of its range.
bool apply_setting(std::string_view key, std::string_view value, Settings* settings);

}  // namespace gpurun::emulated
