// WipedKey: a key that is wiped from memory when it ends.
//
// Keys of leases and sessions prove the owner of a connection. An ended one must not be found in
// this process's memory later. Each copy wipes itself. A value type without a thread of its own.
#pragma once

#include <string.h>

#include "protocol/auth/proof.h"

namespace gpurun::server {

class WipedKey {
 public:
  WipedKey() = default;
  WipedKey(const protocol::Key& key) : key_(key) {}  // NOLINT(*-explicit-*): a key is one.
  // Also wipes its source, a temporary.
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
