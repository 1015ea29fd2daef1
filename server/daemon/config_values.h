// What the values of gpurund's settings may be, whether a file or the command line says them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "server/daemon/config.h"

namespace gpurun::server {

// "16GiB" as bytes: a whole number and, behind any blanks, nothing, B, KiB, MiB, GiB or TiB. K, KB
// and their like are the same powers of 1024, and case does not count. kInvalidArgument else.
Result<std::uint64_t> parse_size(std::string_view text);

// Each checks one value; the message follows the setting's name: "is 'fast', which is ...".
Status check_listen(const Config& config);
Status check_driver(const Config& config);
Status check_tokens(const Config& config);
Status check_audit(const Config& config);
Status check_confinement(const Config& config);
Status check_spare_workers(const Config& config);
Status check_spare_level(const Config& config);
Status check_log(const Config& config);

}  // namespace gpurun::server
