// Worlds: one for each transport, found by its name.
#include "tests/conformance/worlds.h"

#include <gtest/gtest.h>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <random>

#include "tests/conformance/changing_worlds.h"
#include "tests/conformance/rdma_worlds.h"
#include "transport/faulty/connection.h"
#include "transport/loopback/listener.h"
#include "transport/shm/connection.h"
#include "transport/tls/connection.h"

namespace gpurun::transport {
namespace {

class TcpWorld : public World {
 public:
  explicit TcpWorld(const char* host) {
    Result<std::unique_ptr<Listener>> made = listen(std::string("tcp://") + host + ":0");
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    if (made.ok()) listener_ = std::move(*made);
  }
  Listener& listener() override { return *listener_; }
  Result<std::unique_ptr<Connection>> connect() override {
    return transport::connect("tcp://" + listener_->address(), Deadline::in(kTestTimeout));
  }

 private:
  std::unique_ptr<Listener> listener_;
};

// TLS over the connections of another world, with a key that both ends know.
class TlsWorld : public World {
 public:
  explicit TlsWorld(std::unique_ptr<World> inner) : inner_(std::move(inner)) {
    for (const char letter : {'t', 'e', 's', 't'}) {
      key_.identity.push_back(static_cast<std::byte>(letter));
    }
    key_.key.fill(7);
  }
  Listener& listener() override { return inner_->listener(); }
  Result<std::unique_ptr<Connection>> connect() override {
    tls::ServerTrust trust;
    trust.key = key_;
    return secured(inner_->connect(), tls::Handshake::of_client(trust));
  }
  Result<std::unique_ptr<Connection>> accept() override {
    return secured(inner_->accept(), tls::Handshake::of_server(key_));
  }

 private:
  Result<std::unique_ptr<Connection>> secured(Result<std::unique_ptr<Connection>> below,
                                              Result<std::unique_ptr<tls::Handshake>> handshake) {
    if (!below.ok()) return below;
    if (!handshake.ok()) return handshake.status();
    std::unique_ptr<Connection> dressed = inner_->dress(*std::move(below));
    Result<tls::Channel> channel = (*handshake)->finish(*dressed, Deadline::in(kTestTimeout));
    if (!channel.ok()) return channel.status();
    return tls::secure(std::move(dressed), *std::move(channel));
  }

  std::unique_ptr<World> inner_;
  tls::PreSharedKey key_;
};

class ShmWorld : public SharedMemoryWorld {
 private:
  Result<std::unique_ptr<Connection>> carry(std::unique_ptr<Connection> socket,
                                            shm::SharedMemory memory, shm::Side side) override {
    return shm::share(std::move(socket), std::move(memory), side);
  }
};

class LoopbackWorld : public World {
 public:
  Listener& listener() override { return listener_; }
  Result<std::unique_ptr<Connection>> connect() override { return listener_.connect(); }

 private:
  loopback::LoopbackListener listener_;
};

// Another world seen through faults that a correct user of transports does not notice.
class FaultyWorld : public World {
 public:
  explicit FaultyWorld(std::unique_ptr<World> inner) : inner_(std::move(inner)) {}
  Listener& listener() override { return inner_->listener(); }
  Result<std::unique_ptr<Connection>> connect() override { return inner_->connect(); }
  Result<std::unique_ptr<Connection>> accept() override { return inner_->accept(); }
  std::unique_ptr<Connection> dress(std::unique_ptr<Connection> connection) override {
    return faulty::wrap(std::move(connection), faulty::Plan::harmless(test_seed() + count_++));
  }

 private:
  std::unique_ptr<World> inner_;
  std::atomic<std::uint64_t> count_{0};  // Both ends may be wrapped at the same time.
};

std::unique_ptr<World> make_tcp4() { return std::make_unique<TcpWorld>("127.0.0.1"); }
std::unique_ptr<World> make_tcp6() { return std::make_unique<TcpWorld>("[::1]"); }
std::unique_ptr<World> make_loopback() { return std::make_unique<LoopbackWorld>(); }
std::unique_ptr<World> make_shm() { return std::make_unique<ShmWorld>(); }
std::unique_ptr<World> make_faulty_shm() { return std::make_unique<FaultyWorld>(make_shm()); }
std::unique_ptr<World> make_faulty_tcp4() { return std::make_unique<FaultyWorld>(make_tcp4()); }
std::unique_ptr<World> make_faulty_loopback() {
  return std::make_unique<FaultyWorld>(make_loopback());
}
std::unique_ptr<World> make_tls() { return std::make_unique<TlsWorld>(make_tcp4()); }
std::unique_ptr<World> make_faulty_tls() { return std::make_unique<FaultyWorld>(make_tls()); }
std::unique_ptr<World> make_tls_over_faulty() {
  return std::make_unique<TlsWorld>(make_faulty_tcp4());
}

}  // namespace

std::uint64_t test_seed() {
  static const std::uint64_t seed = [] {
    const char* wanted = std::getenv("GPURUN_TEST_SEED");
    const std::uint64_t chosen =
        wanted != nullptr ? std::strtoull(wanted, nullptr, 10) : std::random_device{}();
    std::printf("seed %llu (GPURUN_TEST_SEED)\n", static_cast<unsigned long long>(chosen));
    return chosen;
  }();
  return seed;
}

std::vector<WorldKind> worlds_on_this_machine() {
  std::vector<WorldKind> worlds = {{"tcp4", make_tcp4},
                                   {"shm", make_shm},
                                   {"faulty_shm", make_faulty_shm},
                                   {"changing_shm", make_changing_shm},
                                   {"failing_shm", make_failing_shm},
                                   {"loopback", make_loopback},
                                   {"faulty_tcp4", make_faulty_tcp4},
                                   {"faulty_loopback", make_faulty_loopback},
                                   {"tls", make_tls},
                                   {"faulty_tls", make_faulty_tls},
                                   {"tls_over_faulty", make_tls_over_faulty}};
  for (WorldKind& rdma : rdma_worlds()) worlds.push_back(std::move(rdma));
  if (listen("tcp://[::1]:0").ok()) {
    worlds.push_back({"tcp6", make_tcp6});
  } else {
    std::printf("tcp6 is left out: this machine has no ::1\n");
  }
  return worlds;
}

Result<std::unique_ptr<Connection>> World::accept() {
  return listener().accept(Deadline::in(kTestTimeout));
}

Pair connect_pair(World& world) {
  auto connecting = std::async(std::launch::async, [&world] { return world.connect(); });
  Result<std::unique_ptr<Connection>> server = world.accept();
  Result<std::unique_ptr<Connection>> client = connecting.get();
  EXPECT_TRUE(client.ok()) << client.status().to_string();
  EXPECT_TRUE(server.ok()) << server.status().to_string();
  if (!client.ok() || !server.ok()) return {};
  return {world.dress(std::move(*client)), world.dress(std::move(*server))};
}

}  // namespace gpurun::transport
