// Confinement: what keeps untrusted native code inside its worker (docs/adr/0014).
//
// It has two steps. The kernel makes namespaces only for a process of one thread, so begin() comes
// before anything else. A driver must find its files and devices, so finish() comes once the driver
// is open. finish() also comes before the worker answers the client, and before it decodes any byte
// of the client.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>

#include "base/result.h"

namespace gpurun::server {

struct ConfinementOrder {
  bool full = false;  // Otherwise only `user` applies.
  uid_t user = 0;     // The user to become. 0: keep the present one.
  bool rdma = false;  // The operator trusts the fabric, so RDMA devices stay visible.
};

class Confinement {
 public:
  // The process must have one thread. Parts that the kernel does not grant are left out and are
  // missing in in_force(). It fails only if it would carry out an order by half.
  static Result<Confinement> begin(const ConfinementOrder& order);

  // Applies to all threads, permanently. `emulated`: the driver is our emulated device. Its needs
  // are known, so no file stays visible and few system calls stay allowed. `memory_bytes` limits
  // the private writable memory of this process. 0: no limit. After a failure (kRefused,
  // kUnavailable) nothing must run here.
  // `opens` opens further devices. It runs as the worker's user, before system calls are given up,
  // and not at all where no file stays visible.
  Status finish(bool emulated, std::uint64_t memory_bytes, const std::function<void()>& opens = {});

  // The parts that are in force, as fixed words with spaces between them (docs/security.md). Empty
  // when there are no such parts. Call it after finish().
  const std::string& in_force() const { return in_force_; }

 private:
  explicit Confinement(const ConfinementOrder& order) : order_(order) {}

  Status make_namespaces();
  Status limit(bool emulated, std::uint64_t memory_bytes);
  void add(const char* part);

  ConfinementOrder order_;
  bool user_namespace_ = false;
  bool other_namespaces_ = false;
  std::string in_force_;
};

}  // namespace gpurun::server
