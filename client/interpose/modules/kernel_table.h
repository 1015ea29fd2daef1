// Kernel tables: what the client knows of an image's kernels: names, parameter layouts, attributes.
// The worker describes them once for each image and kind of device. The client keeps them for every
// later load of the same bytes, also beyond the process (table_cache.h).
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/sha256.h"
#include "protocol/calls/module_calls.h"

namespace gpurun::client::interpose::modules {

// One kernel. Immutable.
struct Kernel {
  explicit Kernel(protocol::KernelDescription&& description);

  // 0 when the driver did not report it.
  int attribute(int id) const noexcept {
    return id >= 0 && static_cast<unsigned>(id) < attribute_count
               ? attributes[static_cast<unsigned>(id)]
               : 0;
  }
  bool knows_attribute(int id) const noexcept {
    return id >= 0 && static_cast<unsigned>(id) < attribute_count;
  }

  const std::string name;
  const bool described;     // False: only the name is known.
  const bool layout_known;  // False: a launch must bring packed parameters.
  const std::vector<protocol::KernelParameter> parameters;
  const std::uint32_t block_bytes;  // Of a packed parameter block.
  const std::uint64_t layout_hash;
  std::array<std::int32_t, protocol::kFunctionAttributes> attributes{};
  unsigned attribute_count = 0;
};

// The kernels of one image as one device runs it. Any thread. A Kernel lives as long as its table.
class KernelTable {
 public:
  explicit KernelTable(int server_device) : server_device_(server_device) {}
  KernelTable(const KernelTable&) = delete;
  KernelTable& operator=(const KernelTable&) = delete;

  // Adds a kernel, or replaces its description. The former Kernel stays valid.
  const Kernel* add(protocol::KernelDescription&& description);
  // Every kernel of the image has been added.
  void set_complete();

  const Kernel* find(std::string_view name) const;  // nullptr: not known.
  bool complete() const;
  // True: the image certainly has no kernel of that name. An image with an empty table may have
  // kernels but no code for the device. The driver's answer differs then, so this returns false.
  bool lacks(std::string_view name) const;
  // In the driver's order.
  std::vector<const Kernel*> kernels() const;
  // The worker has promised to keep the image as long as the session lives.
  bool kept() const noexcept { return kept_.load(std::memory_order_relaxed); }
  void set_kept() noexcept { kept_.store(true, std::memory_order_relaxed); }
  // The device of the attributes, by the server's number.
  int server_device() const noexcept { return server_device_; }

 private:
  const int server_device_;
  std::atomic<bool> kept_{false};
  mutable std::mutex mutex_;
  std::deque<Kernel> store_;                           // Guarded by mutex_.
  std::vector<const Kernel*> order_;                   // Guarded by mutex_.
  std::map<std::string_view, std::size_t> positions_;  // In order_. Guarded by mutex_.
  bool complete_ = false;                              // Guarded by mutex_.
};

// The tables of images that this process has loaded or asked about before. Any thread.
class KnownImages {
 public:
  // Above this bound the oldest table is forgotten. The next load of its image is a fence again.
  static constexpr std::size_t kImagesMax = 4096;

  // nullptr: not known.
  std::shared_ptr<KernelTable> find(const Sha256Digest& digest, int server_device) const;
  void add(const Sha256Digest& digest, std::shared_ptr<KernelTable> table);

 private:
  using Key = std::pair<Sha256Digest, int>;
  mutable std::mutex mutex_;
  std::map<Key, std::shared_ptr<KernelTable>> tables_;  // Guarded by mutex_.
  std::deque<Key> age_;                                 // Guarded by mutex_.
};

}  // namespace gpurun::client::interpose::modules
