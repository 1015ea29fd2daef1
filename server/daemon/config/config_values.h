// Setting values: what gpurund's settings may be, from a file or the command line.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "server/daemon/config/config.h"

namespace gpurun::server {

// Parses "16GiB" as bytes: a whole number, then optional blanks, then nothing, B, KiB, MiB, GiB or
// TiB. K, KB and the like are the same powers of 1024. Case does not matter. kInvalidArgument:
// anything else.
Result<std::uint64_t> parse_size(std::string_view text);

// Each checks one value. The message follows the setting's name: "is 'fast', which is ...".
Status check_listen(const Config& config);
Status check_driver(const Config& config);
Status check_tokens(const Config& config);
Status check_audit(const Config& config);
Status check_confinement(const Config& config);
Status check_worker_numa(const Config& config);
Status check_fabric(const Config& config);
Status check_spare_workers(const Config& config);
Status check_spare_level(const Config& config);
Status check_log(const Config& config);

}  // namespace gpurun::server
