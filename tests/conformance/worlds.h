// The transports that the conformance suite runs on: how to get a listener and a peer of each.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "transport/transport.h"

namespace gpurun::transport {

// Longer than any test should take; a wait that meets it has failed.
inline constexpr std::chrono::seconds kTestTimeout{20};

// One listener and the means to reach it.
class World {
 public:
  virtual ~World() = default;
  virtual Listener& listener() = 0;
  virtual Result<std::unique_ptr<Connection>> connect() = 0;
  // The other end of what connect() makes, which may wait for this.
  virtual Result<std::unique_ptr<Connection>> accept();
  // What tests may wrap around both ends; the plain world returns them as they are.
  virtual std::unique_ptr<Connection> dress(std::unique_ptr<Connection> connection) {
    return connection;
  }
};

struct WorldKind {
  std::string name;
  std::unique_ptr<World> (*make)();
};

// "tcp4", "tcp6" (where the machine has it), "shm", "loopback", "tls" (over tcp4), and each again
// over faulty with harmless faults; "tls_over_faulty" has the faults below TLS. GPURUN_TEST_SEED
// fixes the seed, which is printed.
std::vector<WorldKind> worlds_on_this_machine();

struct Pair {
  std::unique_ptr<Connection> client;
  std::unique_ptr<Connection> server;
};
// A connected pair of `world`; ends are null when that failed, which the test has then recorded.
Pair connect_pair(World& world);

std::uint64_t test_seed();

}  // namespace gpurun::transport
