// RdmaPair: a connection over RDMA on the verbs double, with both ends in this process.
#pragma once

#include <future>
#include <memory>
#include <string>
#include <utility>

#include "tests/support/rdma_parts.h"

namespace gpurun::transport::test {

inline Deadline soon() { return Deadline::in(std::chrono::seconds(20)); }

inline Bytes pattern(std::size_t count, unsigned seed) {
  Bytes bytes(count);
  for (std::size_t i = 0; i < count; ++i) {
    bytes[i] = static_cast<std::byte>((i * 131 + i / 251 + seed) & 0xff);
  }
  return bytes;
}

inline Status send_bytes(Connection& connection, ByteView bytes) {
  return connection.send({&bytes, 1}, soon());
}

inline Bytes receive_bytes(Connection& connection, std::size_t count) {
  Bytes bytes(count);
  const auto got = connection.receive(bytes, count, soon());
  EXPECT_TRUE(got.ok()) << got.status().to_string();
  return bytes;
}

struct RdmaPair {
  // `devices`: as VERBS_DOUBLE_DEVICES. No other pair is there.
  explicit RdmaPair(const std::string& devices = "rdma0", const rdma::EndPlace& client_place = {},
                    const rdma::EndPlace& server_place = {}) {
    VerbsDouble::set(devices);
    auto listener = listen("tcp://127.0.0.1:0");
    EXPECT_TRUE(listener.ok()) << listener.status().to_string();
    auto accepting = std::async(std::launch::async, [&] {
      return make(false, server_place, [&] { return (*listener)->accept(soon()); });
    });
    client = make(true, client_place,
                  [&] { return connect("tcp://" + (*listener)->address(), soon()); });
    server = accepting.get();
  }

  std::unique_ptr<carrier::CarriedConnection> client;
  std::unique_ptr<carrier::CarriedConnection> server;

 private:
  template <typename Open>
  static std::unique_ptr<carrier::CarriedConnection> make(bool connects,
                                                          const rdma::EndPlace& place, Open open) {
    Result<std::unique_ptr<Connection>> socket = open();
    EXPECT_TRUE(socket.ok()) << socket.status().to_string();
    Result<RdmaEnd> end = exchange(**socket, connects, 1, place);
    EXPECT_TRUE(end.ok()) << end.status().to_string();
    return carry_on(*std::move(socket), std::move(end->carrier));
  }
};

// Lets `end` receive, as in a session, while `sends` runs. Nothing comes.
template <typename Sends>
auto while_receiving(Connection& end, Sends sends) {
  auto sending = std::async(std::launch::async, sends);
  Bytes none(1);
  while (sending.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
    const Status got = end.receive(none, 1, Deadline::in(std::chrono::milliseconds(3))).status();
    EXPECT_EQ(got.code(), Code::kDeadline) << got.to_string();
  }
  return sending.get();
}

// Sends `whole` from one end to the other. Returns whether all arrived.
inline bool copies_one_way(Connection& from, Connection& to, const Bytes& whole) {
  return while_receiving(from, [&] {
    auto sender = std::async(std::launch::async, [&] { return send_bytes(from, whole).ok(); });
    Bytes got;
    Bytes piece(9777);
    while (got.size() < whole.size()) {
      const auto count = to.receive(piece, 1, soon());
      EXPECT_TRUE(count.ok()) << count.status().to_string();
      if (!count.ok()) break;
      got.insert(got.end(), piece.begin(), piece.begin() + static_cast<std::ptrdiff_t>(*count));
    }
    return sender.get() && got == whole;
  });
}

// From the client to the server, and then a little in each direction.
inline bool copies(RdmaPair& pair, const Bytes& whole) {
  return copies_one_way(*pair.client, *pair.server, whole) &&
         copies_one_way(*pair.server, *pair.client, pattern(3, 9)) &&
         copies_one_way(*pair.client, *pair.server, pattern(2, 10));
}

}  // namespace gpurun::transport::test
