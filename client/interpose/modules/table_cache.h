// TableCache: the worker's descriptions of images' kernels on this user's disk. A program that has
// run before needs no round trip to load its code.
//
// Each key has one file with the packed outcome of the load (protocol/calls/module_calls.h).
//
// A file is hostile input, like anything from a peer. CacheFolder checks and hashes it. What it
// holds is parsed and checked, and removed if that fails. A file that cannot be read or kept costs
// a round trip and is not an error. That includes a missing or read-only home and a full disk.
//
// Any thread, any number of processes. No descriptor stays open.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "base/sha256.h"
#include "client/devices/device_snapshot.h"
#include "protocol/calls/module_calls.h"

namespace gpurun::client::interpose::modules {

// The hash of everything that a table depends on: the image, the server's driver and release, and
// the device's kind. It covers `format`, so that no table of another build is misread. It covers
// `server`, so that no server is trusted for another one. `server` is "host:port", and the port
// does not count.
Sha256Digest table_key(const Sha256Digest& image, const DeviceSnapshot& devices,
                       const Device& device, std::string_view server,
                       const std::string& server_release,
                       std::string_view format = protocol::outcome_format());

class TableCache {
 public:
  // Bound of one table. Larger tables are not kept.
  static constexpr std::size_t kFileBytesMax = std::size_t{1} << 20;
  // Bounds of all tables together, except those added since the last check. On average one of
  // kAddedPerLook additions checks them. The files that were used last stay.
  static constexpr std::size_t kBytesMax = std::size_t{64} << 20;
  static constexpr std::size_t kFilesMax = 4096;
  static constexpr unsigned kAddedPerLook = 16;  // At random: processes are independent.

  // `folder` is an absolute path, created when there is something to keep. Empty: nothing is kept
  // or found.
  explicit TableCache(std::string folder) : folder_(std::move(folder)) {}

  // This user's cache: gpurun-kernels in XDG_CACHE_HOME, or else in .cache of HOME. Disabled with
  // GPURUN_CACHE=off, or without both variables. Immortal. Created at the first call.
  static const TableCache& of_user();
  bool keeps() const noexcept { return !folder_.empty(); }

  std::optional<protocol::ImageOutcome> find(const Sha256Digest& key) const;
  // `outcome` must be of a load that succeeded, and without logs.
  void add(const Sha256Digest& key, const protocol::ImageOutcome& outcome) const;

 private:
  const std::string folder_;
};

}  // namespace gpurun::client::interpose::modules
