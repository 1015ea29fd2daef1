// The table [emulated] of the configuration file: the devices of an emulated driver.
#pragma once

#include <string>

#include "base/status.h"
#include "server/daemon/config_place.h"
#include "server/daemon/config_toml.h"

namespace gpurun::server {

// Reads the table into `words`, as GPURUN_EMULATED has them. Values are checked by the emulated
// device's own rules (server/emulated/setting_words.h).
Status read_emulated(const ConfigPlace& place, const toml::node& node, std::string* words);

}  // namespace gpurun::server
