// Settings of gpurund as a table: every key is named here once. Any other key is an error with its
// line.
#include "server/daemon/config/config_file.h"

#include <charconv>
#include <utility>

#include "base/user_folders.h"
#include "server/daemon/config/config_emulated.h"
#include "server/daemon/config/config_place.h"
#include "server/daemon/config/config_text.h"
#include "server/daemon/config/config_toml.h"
#include "server/daemon/config/config_values.h"

namespace gpurun::server {
namespace {

constexpr uid_t kUidMax = 4'294'967'293;  // The two numbers above mean "no user" and "overflow".

Status take(const ConfigPlace& place, const toml::node& node, std::string* into) {
  const auto* value = node.as_string();
  if (value == nullptr) return place.wrong("must be a text in quotes");
  *into = value->get();
  return {};
}

Status take(const ConfigPlace& place, const toml::node& node, bool* into) {
  const auto* value = node.as_boolean();
  if (value == nullptr) return place.wrong("must be true or false");
  *into = value->get();
  return {};
}

Status take(const ConfigPlace& place, const toml::node& node, std::uint64_t* into) {
  const auto* value = node.as_integer();
  if (value == nullptr || value->get() < 0) return place.wrong("must be a number from 0 up");
  *into = static_cast<std::uint64_t>(value->get());
  return {};
}

Status take_size(const ConfigPlace& place, const toml::node& node, std::uint64_t* into) {
  const auto* text = node.as_string();
  if (text == nullptr) {
    if (take(place, node, into).ok()) return {};
    return place.wrong("must be a number from 0 up, or a size in quotes, such as \"16GiB\"");
  }
  const Result<std::uint64_t> bytes = parse_size(text->get());
  if (!bytes.ok()) return place.wrong("is wrong: " + bytes.status().message());
  *into = *bytes;
  return {};
}

Status take_limits(const ConfigPlace& place, const toml::node& node, UserLimits* limits) {
  const toml::table* table = node.as_table();
  if (table == nullptr) return place.wrong("must be a table");
  for (const auto& [key, value] : *table) {
    const ConfigPlace inner = place.within(key.str(), key.source().begin.line);
    std::optional<std::uint64_t>* limit = key.str() == "max-leases"     ? &limits->leases
                                          : key.str() == "max-gpus"     ? &limits->gpus
                                          : key.str() == "max-sessions" ? &limits->sessions
                                                                        : nullptr;
    if (limit == nullptr) {
      return inner.wrong(
          unknown_in_table(key.str(), {"max-leases", "max-gpus", "max-sessions"}, setting_names()));
    }
    GPURUN_RETURN_IF_ERROR(take(inner, value, &limit->emplace()));
  }
  return {};
}

Status take_users(const ConfigPlace& place, const toml::node& node, Config* config) {
  const toml::table* table = node.as_table();
  if (table == nullptr) return place.wrong("must be a table");
  for (const auto& [key, value] : *table) {
    const std::string user(key.str());
    const ConfigPlace inner = place.within(user, key.source().begin.line);
    if (const Status named = protocol::check_user(user); !named.ok()) {
      return inner.wrong("is wrong: " + named.message());
    }
    GPURUN_RETURN_IF_ERROR(take_limits(inner, value, &config->user_limits.by_name[user]));
  }
  return {};
}

Status take_every_user(const ConfigPlace& place, const toml::node& node, Config* config) {
  return take_limits(place, node, &config->user_limits.every);
}

Result<UidRange> make_range(std::int64_t first, std::int64_t last) {
  if (first < 1 || last < first || last > std::int64_t{kUidMax}) {
    return Status(Code::kInvalidArgument, "worker users go from 1 up: first, last");
  }
  UidRange range;
  range.first = static_cast<uid_t>(first);
  range.last = static_cast<uid_t>(last);
  return range;
}

Status take_uids(const ConfigPlace& place, const toml::node& node, Config* config) {
  config->worker_uids_given = true;
  if (const auto* word = node.as_string(); word != nullptr && word->get() == "none") {
    config->worker_uids = {0, 0};
    return {};
  }
  const auto* pair = node.as_array();
  const auto* first = pair != nullptr && pair->size() == 2 ? pair->get(0)->as_integer() : nullptr;
  const auto* last = first != nullptr ? pair->get(1)->as_integer() : nullptr;
  if (last == nullptr) return place.wrong("must be [first, last] or \"none\"");
  const Result<UidRange> range = make_range(first->get(), last->get());
  if (!range.ok()) return place.wrong("is wrong: " + range.status().message());
  config->worker_uids = *range;
  return {};
}

Status take_emulated(const ConfigPlace& place, const toml::node& node, Config* config) {
  return read_emulated(place, node, setting_names(), &config->emulated);
}

Status take_fabric(const ConfigPlace& place, const toml::node& node, Config* config) {
  const toml::table* table = node.as_table();
  if (table == nullptr) return place.wrong("must be a table");
  config->trusted_fabrics.clear();
  for (const auto& [key, value] : *table) {
    const ConfigPlace inner = place.within(key.str(), key.source().begin.line);
    if (key.str() == "gpudirect") {
      GPURUN_RETURN_IF_ERROR(take(inner, value, &config->gpudirect));
      continue;
    }
    std::uint64_t* const number = key.str() == "service-level"   ? &config->service_level
                                  : key.str() == "traffic-class" ? &config->traffic_class
                                                                 : nullptr;
    if (number != nullptr) {
      GPURUN_RETURN_IF_ERROR(take(inner, value, number));
      continue;
    }
    if (key.str() != "trusted") {
      return inner.wrong(unknown_in_table(
          key.str(), {"trusted", "service-level", "traffic-class", "gpudirect"}, setting_names()));
    }
    const toml::array* ports = value.as_array();
    for (std::size_t i = 0; ports != nullptr && i < ports->size(); ++i) {
      const auto* port = ports->get(i)->as_string();
      if (port == nullptr) ports = nullptr;
      if (port != nullptr) config->trusted_fabrics.push_back(port->get());
      if (ports == nullptr) break;
    }
    if (ports == nullptr) return inner.wrong("must be a list of ports, such as [\"mlx5_0:1\"]");
  }
  return {};
}

// When a change of the file takes effect.
enum class Heeded { kAtStart, kAtReload };

struct Setting {
  const char* name;
  Status (*take)(const ConfigPlace&, const toml::node&, Config*);
  bool (*same)(const Config&, const Config&);
  Heeded heeded = Heeded::kAtStart;
  Status (*check)(const Config&) = nullptr;  // Of its value, beyond the checks of take().
};

template <auto kMember>
Status take_it(const ConfigPlace& place, const toml::node& node, Config* config) {
  return take(place, node, &(config->*kMember));
}

template <auto kMember>
Status take_its_size(const ConfigPlace& place, const toml::node& node, Config* config) {
  return take_size(place, node, &(config->*kMember));
}

// For a setting of which the default differs from its member's.
template <auto kMember, auto kTold>
Status take_given(const ConfigPlace& place, const toml::node& node, Config* config) {
  config->*kTold = true;
  return take(place, node, &(config->*kMember));
}

template <auto... kMembers>
bool same(const Config& a, const Config& b) {
  return ((a.*kMembers == b.*kMembers) && ...);
}

bool same_uids(const Config& a, const Config& b) {
  return a.worker_uids.first == b.worker_uids.first && a.worker_uids.last == b.worker_uids.last;
}

bool same_every_user(const Config& a, const Config& b) {
  return a.user_limits.every == b.user_limits.every;
}

bool same_users(const Config& a, const Config& b) {
  return a.user_limits.by_name == b.user_limits.by_name;
}

using C = Config;
constexpr auto kReload = Heeded::kAtReload;
constexpr auto kStart = Heeded::kAtStart;
constexpr Setting kSettings[] = {
    {"listen", take_it<&C::listen>, same<&C::listen>, kStart, check_listen},
    {"driver", take_it<&C::driver>, same<&C::driver>, kStart, check_driver},
    {"emulated", take_emulated, same<&C::emulated>},
    {"worker", take_it<&C::worker>, same<&C::worker>},
    {"secret-file", take_it<&C::secret_file>, same<&C::secret_file>, kReload},
    {"insecure-plaintext", take_it<&C::insecure_plaintext>, same<&C::insecure_plaintext>, kReload},
    {"tokens", take_given<&C::tokens, &C::tokens_given>, same<&C::tokens, &C::tokens_given>, kStart,
     check_tokens},
    {"audit", take_it<&C::audit>, same<&C::audit>, kStart, check_audit},
    {"every-user", take_every_user, same_every_user, kReload},
    {"user", take_users, same_users, kReload},
    {"tls", take_it<&C::tls>, same<&C::tls>},
    {"tls-certificate", take_it<&C::tls_certificate>, same<&C::tls_certificate>, kReload},
    {"tls-key", take_it<&C::tls_key>, same<&C::tls_key>, kReload},
    {"worker-uids", take_uids, same_uids},
    {"confinement", take_it<&C::confinement>, same<&C::confinement>, kStart, check_confinement},
    {"worker-memory", take_its_size<&C::worker_memory>, same<&C::worker_memory>},
    {"worker-numa", take_it<&C::worker_numa>, same<&C::worker_numa>, kStart, check_worker_numa},
    {"fabric", take_fabric,
     same<&C::trusted_fabrics, &C::service_level, &C::traffic_class, &C::gpudirect>, kStart,
     check_fabric},
    {"spare-workers", take_given<&C::spare_workers, &C::spare_workers_given>,
     same<&C::spare_workers, &C::spare_workers_given>, kStart, check_spare_workers},
    {"spare-level", take_it<&C::spare_level>, same<&C::spare_level>, kStart, check_spare_level},
    {"cache", take_given<&C::cache, &C::cache_given>, same<&C::cache, &C::cache_given>},
    {"cache-bytes", take_its_size<&C::cache_bytes>, same<&C::cache_bytes>},
    {"log", take_it<&C::log>, same<&C::log>, kReload, check_log},
};

Status take_key(const ConfigPlace& place, const toml::node& node, Config* config) {
  for (const Setting& setting : kSettings) {
    if (place.name != setting.name) continue;
    GPURUN_RETURN_IF_ERROR(setting.take(place, node, config));
    config->origins[place.name] = place.origin();
    const Status good = setting.check == nullptr ? Status() : setting.check(*config);
    return good.ok() ? good : place.wrong(good.message());
  }
  return place.wrong(unknown_key(place.name, setting_names()));
}

}  // namespace

std::vector<std::string_view> setting_names() {
  std::vector<std::string_view> names;
  for (const Setting& setting : kSettings) names.emplace_back(setting.name);
  return names;
}

Status check_setting(std::string_view name, const Config& config) {
  for (const Setting& setting : kSettings) {
    if (name == setting.name && setting.check != nullptr) return setting.check(config);
  }
  return {};
}

ConfigChanges changes_between(const Config& before, const Config& after) {
  ConfigChanges changes;
  for (const Setting& setting : kSettings) {
    if (setting.same(before, after)) continue;
    (setting.heeded == kReload ? changes.heeded : changes.at_restart).emplace_back(setting.name);
  }
  return changes;
}

Status read_config_file(const std::string& path, Config* config) {
  const Result<std::string> text = config_text(path);
  if (!text.ok()) return text.status();
  const toml::parse_result parsed = toml::parse(*text, path);
  if (!parsed) {
    return Status(Code::kInvalidArgument, path + ":" +
                                              std::to_string(parsed.error().source().begin.line) +
                                              ": " + std::string(parsed.error().description()));
  }
  for (const auto& [key, node] : parsed.table()) {
    const ConfigPlace place{path, key.source().begin.line, std::string(key.str())};
    GPURUN_RETURN_IF_ERROR(take_key(place, node, config));
  }
  return {};
}

Result<UidRange> parse_uid_range(const std::string& text) {
  if (text == "none") return UidRange{0, 0};
  std::int64_t ends[2] = {0, 0};
  const char* end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, ends[0]);
  if (first.ec == std::errc() && first.ptr != end && *first.ptr == '-') {
    const auto last = std::from_chars(first.ptr + 1, end, ends[1]);
    if (last.ec == std::errc() && last.ptr == end) return make_range(ends[0], ends[1]);
  }
  return Status(Code::kInvalidArgument, "'" + text + "' is neither FIRST-LAST nor none");
}

std::string default_cache() {
  const std::string given = service_folder("CACHE_DIRECTORY");
  return given.empty() ? xdg_folder("XDG_CACHE_HOME", ".cache") : given;
}

}  // namespace gpurun::server
