// Worlds in shared memory, whole, or with connections that change their carrier.
#pragma once

#include <memory>
#include <string>

#include "tests/conformance/worlds.h"
#include "transport/shm/connection.h"

namespace gpurun::transport {

// Both ends map memory that the connecting end offers.
class SharedMemoryWorld : public World {
 public:
  SharedMemoryWorld();
  Listener& listener() override { return *listener_; }
  Result<std::unique_ptr<Connection>> connect() override;
  Result<std::unique_ptr<Connection>> accept() override;

 private:
  virtual Result<std::unique_ptr<Connection>> carry(std::unique_ptr<Connection> socket,
                                                    shm::SharedMemory memory, shm::Side side) = 0;

  std::string name_;
  std::unique_ptr<Listener> listener_;
};

// Both ends leave the shared memory and enter it again, at random before a send or a receive.
std::unique_ptr<World> make_changing_shm();
// The shared memory of each end fails behind a random number of bytes, most of them few.
std::unique_ptr<World> make_failing_shm();

}  // namespace gpurun::transport
