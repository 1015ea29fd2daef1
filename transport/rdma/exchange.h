// Exchange: how the ends of a TCP connection agree to go on over RDMA.
//
// The connecting end sends a message with its offer, and the other end answers with its own. Either
// may say why it has none. When both have offered, both carry the connection, and begin over its
// socket (transport/carrier/connection.h). The connecting end then enters, and the other direction
// follows.
#pragma once

#include <memory>
#include <string>

#include "base/deadline.h"
#include "base/result.h"
#include "transport/rdma/fabric.h"
#include "transport/transport.h"

namespace gpurun::transport::rdma {

// What an end has for it, or why it has nothing.
struct Side {
  Fabric* fabric = nullptr;
  std::string why_none = {};
  EndPlace place = {};
};

// The connecting end, between its message and the answer.
struct Asked {
  std::unique_ptr<FabricEnd> end;
  std::string why_none;
};

// Sends the message over `socket`, a connection of TCP, or of TLS over TCP.
//   kDeadline, kPeerGone
Result<Asked> ask(Connection& socket, const Side& side, Deadline deadline);

// The result of either end. The other end's text in it is printable.
struct Agreement {
  std::string ports;     // "mlx5_0:1 to mlx5_1:1": this end's port and the other end's.
  std::string why_none;  // Why the connection does not go over RDMA. Empty: it does.
};

// Receives the answer and goes on over RDMA, or over `connection` as it is. `below`: the connection
// of TCP that `connection` owns, or nullptr when it is that itself.
//   kDeadline, kPeerGone, kProtocol  the connection is of no further use.
Result<Agreement> enter(std::unique_ptr<Connection>& connection, Connection* below, Asked asked,
                        Deadline deadline);

// The other end: receives the message, answers, and carries the connection if both ends offer.
// Errors as enter().
Result<Agreement> answer(std::unique_ptr<Connection>& connection, Connection* below,
                         const Side& side, Deadline deadline);

}  // namespace gpurun::transport::rdma
