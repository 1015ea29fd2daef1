// TableCache: what a table depends on, and the folder of this user.
#include "client/interpose/modules/table_cache.h"

#include <stdlib.h>
#include <sys/auxv.h>

#include <memory>
#include <span>
#include <utility>

#include "base/cache_folder.h"
#include "base/log.h"
#include "base/user_folders.h"

namespace gpurun::client::interpose::modules {
namespace {

// A change of the format needs another number.
constexpr std::string_view kFormat = "gpurun table 1\n";
// XDG Base Directory Specification: the base folder is created too, for this user alone. A home is
// not.
constexpr std::size_t kMissingMax = 2;

CacheRules rules() {
  CacheRules rules;
  rules.bytes_max = TableCache::kBytesMax;
  rules.files_max = TableCache::kFilesMax;
  rules.entry_bytes_max = TableCache::kFileBytesMax;
  rules.additions_per_look = TableCache::kAddedPerLook;
  return rules;
}

// No descriptor stays open, because the program may close it.
Result<std::unique_ptr<CacheFolder>> open_folder(const std::string& path, std::size_t missing_max) {
  if (path.empty()) return Status(Code::kUnavailable, "nothing is kept");
  auto folder = CacheFolder::open(path, rules(), missing_max);
  if (folder.status().code() == Code::kRefused) {
    GPURUN_LOG(kInfo, "%s; it is not used", folder.status().message().c_str());
  }
  return folder;
}

std::string folder_of_user() {
  // A setuid program must not write where the user's environment names.
  if (getauxval(AT_SECURE) != 0) return "";
  const char* setting = getenv("GPURUN_CACHE");
  if (setting != nullptr && std::string_view(setting) == "off") return "";
  return xdg_folder("XDG_CACHE_HOME", ".cache", "gpurun-kernels");
}

}  // namespace

Sha256Digest table_key(const Sha256Digest& image, const DeviceSnapshot& devices,
                       const Device& device, std::string_view server,
                       const std::string& server_release, std::string_view format) {
  Sha256 hash;
  const auto number = [&hash](std::int64_t value) { hash.update(bytes_of(value)); };
  const auto text = [&](std::string_view value) {
    number(static_cast<std::int64_t>(value.size()));
    hash.update(byte_view(value.data(), value.size()));
  };
  text(format);
  hash.update(byte_view(image.data(), image.size()));
  text(server.substr(0, server.rfind(':')));
  text(server_release);
  number(devices.driver_version());
  number(devices.emulated() ? 1 : 0);
  text(device.name);
  number(device.library_capability);
  for (const std::optional<int>& attribute : device.attributes) {
    number(attribute.has_value() ? *attribute : std::int64_t{1} << 40);
  }
  return hash.finish();
}

const TableCache& TableCache::of_user() {
  static const TableCache* const cache = new TableCache(folder_of_user());
  return *cache;
}

std::optional<protocol::ImageOutcome> TableCache::find(const Sha256Digest& key) const {
  const auto folder = open_folder(folder_, 0);
  if (!folder.ok()) return std::nullopt;
  const Result<Bytes> payload = (*folder)->find(kFormat, key);
  Status damage = payload.status();
  if (payload.ok()) {
    auto outcomes = protocol::unpack_outcomes(*payload);
    if (outcomes.ok() && outcomes->size() == 1 && outcomes->front().result == 0 &&
        !outcomes->front().missing) {
      return std::move(outcomes->front());
    }
    damage = (*folder)->remove_damaged(key, "is no table of kernels");
  }
  if (damage.code() != Code::kUnavailable) GPURUN_LOG(kInfo, "%s", damage.message().c_str());
  return std::nullopt;
}

void TableCache::add(const Sha256Digest& key, const protocol::ImageOutcome& outcome) const {
  const auto folder = open_folder(folder_, kMissingMax);
  if (!folder.ok()) return;
  const Bytes payload = protocol::pack(std::span<const protocol::ImageOutcome>(&outcome, 1));
  // Without it the next run pays a round trip.
  static_cast<void>((*folder)->add(kFormat, key, {ByteView(payload)}));
}

}  // namespace gpurun::client::interpose::modules
