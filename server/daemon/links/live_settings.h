// CurrentSettings: the settings that a running daemon can change. New links and requests use them.
//
// Any thread. The mutex is a leaf.
#pragma once

#include <memory>
#include <mutex>
#include <utility>

#include "base/bytes.h"
#include "transport/tls/handshake.h"

namespace gpurun::server {

struct LiveSettings {
  Bytes secret;
  std::shared_ptr<const transport::tls::Identity> identity;
  bool insecure_plaintext = false;
};

class CurrentSettings {
 public:
  explicit CurrentSettings(LiveSettings first)
      : settings_(std::make_shared<const LiveSettings>(std::move(first))) {}
  CurrentSettings(const CurrentSettings&) = delete;
  CurrentSettings& operator=(const CurrentSettings&) = delete;

  std::shared_ptr<const LiveSettings> get() const {
    const std::lock_guard lock(mutex_);
    return settings_;
  }
  void adopt(LiveSettings settings) {
    auto adopted = std::make_shared<const LiveSettings>(std::move(settings));
    const std::lock_guard lock(mutex_);
    settings_.swap(adopted);  // The old ones end after the lock.
  }

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<const LiveSettings> settings_;  // Under mutex_.
};

}  // namespace gpurun::server
