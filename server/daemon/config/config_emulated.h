// Table [emulated] of the configuration file: the devices of an emulated driver.
#pragma once

#include <string>

#include "base/status.h"
#include "server/daemon/config/config_place.h"
#include "server/daemon/config/config_toml.h"

namespace gpurun::server {

// Reads the table into `words`, in the form of GPURUN_EMULATED. The emulated device's own rules
// check the values (emulated/setting_words.h).
Status read_emulated(const ConfigPlace& place, const toml::node& node, std::string* words);

}  // namespace gpurun::server
