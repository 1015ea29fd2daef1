// CarriedParts: the two ends of a connection in shared memory, before their carriers are on them.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "transport/shm/connection.h"

namespace gpurun::transport::test {

struct CarriedParts {
  explicit CarriedParts(std::size_t ring_bytes = shm::kRingBytes) {
    static std::atomic<int> made{0};
    const Deadline deadline = Deadline::in(std::chrono::seconds(20));
    const std::string url =
        "unix:gpurun-carrier-test-" + std::to_string(getpid()) + "-" + std::to_string(made++);
    auto listener = listen(url);
    EXPECT_TRUE(listener.ok()) << listener.status().to_string();
    auto connected = connect(url, deadline);
    auto accepted = (*listener)->accept(deadline);
    EXPECT_TRUE(connected.ok() && accepted.ok());
    sockets[0] = *std::move(connected);
    sockets[1] = *std::move(accepted);
    std::string why_none;
    auto offered = shm::offer(*sockets[0], ring_bytes, deadline, &why_none);
    auto taken = shm::take_offer(*sockets[1], deadline);
    EXPECT_TRUE(offered.ok() && offered->is_there() && taken.ok()) << why_none;
    memory[0] = *std::move(offered);
    memory[1] = *std::move(taken);
  }

  // The rings of an end, once.
  std::unique_ptr<carrier::Carrier> rings(int end) {
    return std::make_unique<shm::RingCarrier>(std::move(memory[end]),
                                              end == 0 ? shm::Side::kOffered : shm::Side::kTook);
  }
  // The end with `carrier` on it, once.
  std::unique_ptr<carrier::CarriedConnection> carry_by(int end,
                                                       std::unique_ptr<carrier::Carrier> carrier,
                                                       bool may_change = true) {
    auto* const socket = dynamic_cast<sockets::SocketConnection*>(sockets[end].release());
    Capabilities capabilities;
    capabilities.same_host = true;
    capabilities.shares_memory = true;
    carrier::CarrierOptions options;
    options.may_change = may_change;
    return carrier::carry(carrier::plain_socket(std::unique_ptr<sockets::SocketConnection>(socket)),
                          std::move(carrier), capabilities, options);
  }

  std::unique_ptr<Connection> sockets[2];
  shm::SharedMemory memory[2];
};

}  // namespace gpurun::transport::test
