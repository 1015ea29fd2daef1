// Worlds: the transports that the conformance suite runs on, each with a listener and a peer.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "transport/transport.h"

namespace gpurun::transport {

// Longer than any test should take. A wait that takes so long has failed.
inline constexpr std::chrono::seconds kTestTimeout{20};

// One listener and the means to reach it.
class World {
 public:
  virtual ~World() = default;
  virtual Listener& listener() = 0;
  virtual Result<std::unique_ptr<Connection>> connect() = 0;
  // The other end of a connection of connect(), which may wait for this call.
  virtual Result<std::unique_ptr<Connection>> accept();
  // Lets a test wrap both ends. The plain world returns them unchanged.
  virtual std::unique_ptr<Connection> dress(std::unique_ptr<Connection> connection) {
    return connection;
  }
};

struct WorldKind {
  std::string name;
  std::unique_ptr<World> (*make)();
};

// "tcp4", "tcp6" (if the machine has it), "shm", "loopback", "tls" (over tcp4), and each again over
// faulty with harmless faults. "tls_over_faulty" has the faults below TLS. "changing_shm" leaves
// its shared memory and enters it again, and in "failing_shm" the shared memory fails
// (changing_worlds.h). rdma_worlds.h has those over RDMA. GPURUN_TEST_SEED fixes the seed, which is
// printed.
std::vector<WorldKind> worlds_on_this_machine();

struct Pair {
  std::unique_ptr<Connection> client;
  std::unique_ptr<Connection> server;
};
// Connects a pair of `world`. On failure the ends are null and the test has failed.
Pair connect_pair(World& world);

std::uint64_t test_seed();

}  // namespace gpurun::transport
