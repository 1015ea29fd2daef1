// TableCache: what the worker once told of an image's kernels, on this user's disk, so that a
// program which has run before needs no round trip to load its code.
//
// One file per key: a head with the key and the SHA-256 of what follows, then the packed outcome of
// the load (protocol/module_calls.h). A file is hostile input like anything from a peer: it is
// bounded, must be this user's own, is hashed, parsed and checked; one that fails is removed. Files
// appear whole (written beside, then renamed). What cannot be read or kept costs a round trip and
// is no error: there is no home, it is read-only, the disk is full.
//
// Any thread, any number of processes. No descriptor stays open.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "base/sha256.h"
#include "client/device_snapshot.h"
#include "protocol/module_calls.h"

namespace gpurun::client::interpose::modules {

// Everything that a table depends on: the image, the server's driver and release, the device's
// kind; how the table is written, so that none of another build is misread; and who said it, so
// that no server is believed about another: `server` is "host:port", of which the port does not
// count.
Sha256Digest table_key(const Sha256Digest& image, const DeviceSnapshot& devices,
                       const Device& device, std::string_view server,
                       const std::string& server_release,
                       std::string_view format = protocol::outcome_format());

class TableCache {
 public:
  // Of one table; larger ones are not kept.
  static constexpr std::size_t kFileBytesMax = std::size_t{1} << 20;
  // Of all, but for what was added since somebody last looked, which one of kAddedPerLook does; the
  // files that were written first go beyond.
  static constexpr std::size_t kBytesMax = std::size_t{64} << 20;
  static constexpr std::size_t kFilesMax = 4096;
  static constexpr unsigned kAddedPerLook = 16;  // At random: processes know nothing of each other.

  // An absolute path, made when there is something to keep; empty: nothing is kept or found.
  explicit TableCache(std::string folder) : folder_(std::move(folder)) {}

  // This user's: gpurun-kernels in XDG_CACHE_HOME, else in .cache of HOME. None with
  // GPURUN_CACHE=off or without either. Immortal; made at the first call.
  static const TableCache& of_user();
  bool keeps() const noexcept { return !folder_.empty(); }

  std::optional<protocol::ImageOutcome> find(const Sha256Digest& key) const;
  // Without logs; of a load that succeeded.
  void add(const Sha256Digest& key, const protocol::ImageOutcome& outcome) const;

 private:
  const std::string folder_;
};

}  // namespace gpurun::client::interpose::modules
