// One word of GPURUN_EMULATED, for those that must know whether the emulated device takes it.
#pragma once

#include <string_view>

#include "server/emulated/settings.h"

namespace gpurun::emulated {

// False, and nothing changed: there is no such key, or the value is out of its range.
bool apply_setting(std::string_view key, std::string_view value, Settings* settings);

}  // namespace gpurun::emulated
