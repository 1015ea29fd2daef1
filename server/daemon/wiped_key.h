// WipedKey: a key of which nothing is left in memory once it ends.
//
// Keys of leases and sessions prove whose a connection is. What has ended must not be found in this
// process's memory later. Each copy wipes itself. Value; no thread of its own.
#pragma once

#include <string.h>

#include "protocol/proof.h"

namespace gpurun::server {

class WipedKey {
 public:
  WipedKey() = default;
  WipedKey(const protocol::Key& key) : key_(key) {}  // NOLINT(*-explicit-*): a key is one.
  // What it is made of was a temporary: that is wiped, too.
  WipedKey(protocol::Key&& key) : key_(key) { wipe(key); }  // NOLINT(*-explicit-*)
  WipedKey(const WipedKey&) = default;
  WipedKey& operator=(const WipedKey&) = default;
  ~WipedKey() { wipe(key_); }

  const protocol::Key& get() const { return key_; }
  operator const protocol::Key&() const { return key_; }  // NOLINT(*-explicit-*)

 private:
  static void wipe(protocol::Key& key) { explicit_bzero(key.data(), key.size()); }

  protocol::Key key_{};
};

}  // namespace gpurun::server
