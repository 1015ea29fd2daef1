// Setting values: one function for each setting with words or a range of its own.
#include "server/daemon/config/config_values.h"

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <limits>
#include <utility>

#include "base/log.h"
#include "base/printable.h"
#include "protocol/limits.h"
#include "server/daemon/workers/spare_workers.h"
#include "transport/rdma/allowed_ports.h"
#include "transport/sockets/address.h"

namespace gpurun::server {
namespace {

Status wrong(const std::string& value, const std::string& why) {
  return Status(Code::kInvalidArgument, "is '" + value + "'" + why);
}

Status check_word(const std::string& value, std::initializer_list<const char*> words,
                  const char* listed) {
  for (const char* word : words) {
    if (value == word) return {};
  }
  return wrong(value, std::string("; it may be ") + listed);
}

bool is_absolute(const std::string& path) { return !path.empty() && path[0] == '/'; }

// The power of two of a suffix. -1: there is no such suffix.
int shift_of(std::string suffix) {
  for (char& each : suffix) {
    if (each >= 'A' && each <= 'Z') each = static_cast<char>(each - 'A' + 'a');
  }
  if (suffix.empty() || suffix == "b") return 0;
  const std::string_view letters = "kmgt";
  const std::size_t place = letters.find(suffix[0]);
  const std::string rest = suffix.substr(1);
  if (place == std::string_view::npos || !(rest.empty() || rest == "b" || rest == "ib")) return -1;
  return 10 * (static_cast<int>(place) + 1);
}

}  // namespace

Result<std::uint64_t> parse_size(std::string_view text) {
  std::uint64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  std::string_view suffix(rest, static_cast<std::size_t>(end - rest));
  suffix.remove_prefix(std::min(suffix.find_first_not_of(' '), suffix.size()));
  const int shift = shift_of(std::string(suffix));
  if (error != std::errc() || shift < 0 ||
      value > (std::numeric_limits<std::uint64_t>::max() >> shift)) {
    return Status(Code::kInvalidArgument,
                  "'" + std::string(text) + "' is no size, such as 4096, 512MiB or 16GiB");
  }
  return value << shift;
}

Status check_listen(const Config& config) {
  const auto place = transport::sockets::parse_host_port(config.listen, limits::kDefaultPort);
  if (place.ok()) return {};
  return wrong(config.listen, ": " + place.status().message());
}

Status check_driver(const Config& config) {
  if (config.driver == "real" || config.driver == "emulated" || is_absolute(config.driver)) {
    return {};
  }
  return wrong(config.driver, ", which is neither real, nor emulated, nor an absolute path");
}

Status check_tokens(const Config& config) {
  if (config.tokens.empty() || config.tokens == "none" || is_absolute(config.tokens)) return {};
  return wrong(config.tokens, ", which is neither none nor an absolute path");
}

Status check_audit(const Config& config) {
  const std::string& audit = config.audit;
  if (audit.empty() || audit == "syslog" || audit == "none" || is_absolute(audit)) return {};
  return wrong(audit, ", which is neither syslog, nor none, nor an absolute path");
}

Status check_confinement(const Config& config) {
  return check_word(config.confinement, {"full", "none"}, "full or none");
}

Status check_worker_numa(const Config& config) {
  return check_word(config.worker_numa, {"auto", "off"}, "auto or off");
}

Status check_number(std::uint64_t number, std::uint64_t most, const char* name) {
  if (number <= most) return {};
  return Status(Code::kInvalidArgument, std::string("has ") + name + " = " +
                                            std::to_string(number) + "; it may be 0 to " +
                                            std::to_string(most));
}

Status check_fabric(const Config& config) {
  if (config.trusted_fabrics.size() > transport::rdma::kPortsMax) {
    return Status(Code::kInvalidArgument,
                  "names more than " + std::to_string(transport::rdma::kPortsMax) + " ports");
  }
  for (const std::string& port : config.trusted_fabrics) {
    if (transport::rdma::is_port_name(port)) continue;
    return Status(Code::kInvalidArgument, "names '" + printable(port.substr(0, 40)) +
                                              "', which is not a device or port of RDMA");
  }
  GPURUN_RETURN_IF_ERROR(
      check_number(config.service_level, transport::rdma::kServiceLevelMax, "service-level"));
  GPURUN_RETURN_IF_ERROR(
      check_number(config.traffic_class, transport::rdma::kTrafficClassMax, "traffic-class"));
  const Status gpudirect = check_word(config.gpudirect, {"auto", "off"}, "auto or off");
  return gpudirect.ok() ? gpudirect
                        : Status(gpudirect.code(), "has a gpudirect that " + gpudirect.message());
}

Status check_spare_workers(const Config& config) {
  if (config.spare_workers <= SpareOptions::kCountMax) return {};
  return Status(Code::kInvalidArgument, "is " + std::to_string(config.spare_workers) +
                                            "; it may be 0 to " +
                                            std::to_string(SpareOptions::kCountMax));
}

Status check_spare_level(const Config& config) {
  return check_word(config.spare_level, {"mapped", "initialised"}, "mapped or initialised");
}

Status check_log(const Config& config) {
  log::Level level = log::Level::kWarning;
  if (log::parse_level(config.log.c_str(), &level)) return {};
  return wrong(config.log, "; it may be error, warning, info, debug or trace");
}

}  // namespace gpurun::server
