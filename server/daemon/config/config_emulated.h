// Table [emulated] of the configuration file: the devices of an emulated driver.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "server/daemon/config/config_place.h"
#include "server/daemon/config/config_toml.h"

namespace gpurun::server {

// Reads the table into `words`, in the form of GPURUN_EMULATED. The emulated device's own rules
// check the values (emulated/setting_words.h). `top_level` has the keys outside tables, for
// messages.
Status read_emulated(const ConfigPlace& place, const toml::node& node,
                     const std::vector<std::string_view>& top_level, std::string* words);

}  // namespace gpurun::server
