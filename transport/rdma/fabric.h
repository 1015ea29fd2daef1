// Fabric: what a session has of RDMA on this machine. Nothing here needs the headers of verbs, so
// its users compile everywhere. A build without these headers has none (fabric_not_built.cc).
//
// Each end of a connection makes an end here, sends the offer of it over the connection's socket,
// and connects with the other end's offer. The end that offers first may lend memory, and the other
// one may read it (transport/remote_memory.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "transport/carrier/carrier.h"
#include "transport/rdma/allowed_ports.h"
#include "transport/rdma/descriptors.h"
#include "transport/rdma/locked_memory.h"
#include "transport/rdma/offer.h"
#include "transport/rdma/port_order.h"

namespace gpurun::transport::rdma {

class FabricEnd {
 public:
  FabricEnd() = default;
  FabricEnd(const FabricEnd&) = delete;
  FabricEnd& operator=(const FabricEnd&) = delete;
  virtual ~FabricEnd() = default;

  virtual const Offer& offer() const noexcept = 0;
  // The port that it uses: "mlx5_0:1".
  virtual std::string port() const = 0;
  // Why it comes before other ports that lead to the peer, for people: "PIX to the GPU". Empty:
  // there is no other, or nothing prefers this one.
  virtual std::string why_port() const = 0;
  // Once. The other end may send from now on. `theirs` may be any bytes of an untrusted peer.
  //   kProtocol     `theirs` is not valid.
  //   kUnavailable  the ends do not fit, or the device refuses it.
  virtual Result<std::unique_ptr<carrier::Carrier>> connect(const Offer& theirs) = 0;
};

// Which of a session's connections an end is for. The log takes the first port, as the first bulk
// connection does. Each further one takes the next port that leads to the peer: rails.
struct EndPlace {
  unsigned index = 0;  // 0: the log's.
  unsigned count = 1;  // All of the session.
  LaterBytes later = {};
};

// Open devices. One thread at a time.
class Fabric {
 public:
  Fabric() = default;
  Fabric(const Fabric&) = delete;
  Fabric& operator=(const Fabric&) = delete;
  virtual ~Fabric() = default;

  // Makes an end for a peer that is reached from the address `local`: a port of Ethernet needs a
  // GID that is this address. Takes the first such port (port_order.h), or the first one that fits
  // `theirs`. RoCE v2 is better than v1, and InfiniBand comes last. The rings have kRingBytes, or
  // less where the peer's are smaller, where the limit of locked memory gives each connection less,
  // or where the device does not register so much.
  //   kUnavailable        no port fits, or the device refuses it, with the reason.
  //   kResourceExhausted  the device refuses it, and the message says how to raise a limit.
  virtual Result<std::unique_ptr<FabricEnd>> make_end(const Gid& local, const Offer* theirs,
                                                      const EndPlace& place) = 0;
  Result<std::unique_ptr<FabricEnd>> make_end(const Gid& local, const Offer* theirs) {
    return make_end(local, theirs, EndPlace());
  }
  // The names of its ports. At least one.
  virtual std::vector<std::string> ports() const = 0;
};

// Opens the devices of the allowed ports, for a session that is `near` a place. Every port that is
// left out is added to `rejected`. `local`, unless nullptr: only ports that make_end() takes for a
// peer that is reached from there. Each port is tested, for some seconds in all where devices are
// silent. It opens descriptors and files, so a process must have its user and namespaces by then,
// and give up system calls later. `place`: where descriptors go that live as long as the fabric or
// a connection.
//   kUnavailable  no port can be used. The message has the first reason.
Result<std::unique_ptr<Fabric>> open_fabric(const AllowedPorts& allowed,
                                            std::vector<Rejected>* rejected,
                                            const NearTo& near = {}, const Gid* local = nullptr,
                                            const DescriptorPlace& place = {});

// Why this build has no RDMA. Empty: it has it.
const char* why_not_built() noexcept;

// The local address of a connected socket.
//   kUnavailable  it is not a socket of IP.
Result<Gid> address_of(int socket);
// The peer's address of a connected socket. Errors as address_of().
Result<Gid> peer_address_of(int socket);

}  // namespace gpurun::transport::rdma
