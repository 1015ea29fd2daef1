// Confinement: what keeps a stranger's native code inside its worker (docs/adr/0014).
//
// Two steps, for the kernel makes namespaces for a process of one thread only, and a driver must
// find its files and devices: begin() before anything else, finish() once the driver is open and
// before the client is answered, which is before anything of it is decoded.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "base/result.h"

namespace gpurun::server {

struct ConfinementOrder {
  bool full = false;  // Else only `user`.
  uid_t user = 0;     // To become; 0: to stay who we are.
};

class Confinement {
 public:
  // This process must have one thread. What the kernel does not give is left out, and missing in
  // in_force(); only an order that cannot be carried out half fails.
  static Result<Confinement> begin(const ConfinementOrder& order);

  // All threads, for good. `emulated`: the driver is our emulated device, whose needs we know: no
  // file is left to see, and few system calls. `memory_bytes`: that this process may make writable
  // of its own; 0: any. kRefused, kUnavailable: nothing must run here then.
  Status finish(bool emulated, std::uint64_t memory_bytes);

  // The parts that are in force, in fixed words with spaces between (docs/security.md); empty:
  // none. After finish().
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
