// CarriedConnection: a connection that sends its bytes by a carrier, and over its socket when it
// leaves the carrier. It can change while it runs, at any byte, in each direction by itself.
//
// While a direction uses the carrier, the socket carries only records that wake a sleeping
// receiver, and the end of the connection. The kernel closes the socket of a process that dies. So
// neither end polls. A receiver that polls (receive_some()) makes no system call, and neither does
// a sender while its receiver is awake. A sender that finds the carrier full sleeps until there is
// room. It checks every tenth of a second whether the other end has died.
//
// A change (control.h has the records):
//
// - The receiver leaves. It takes nothing more by the carrier, and sends kLeave with the count of
//   the bytes that it has taken. The sender then sends the bytes behind that count as kData, from
//   the carrier's own memory, and all later ones too. So no byte is lost, and none comes twice.
// - The sender enters. It sends kEnter over the socket behind its last kData. The receiver reads
//   the socket up to there, and goes on with the carrier.
// - A carrier that wakes its receiver by itself (Carrier::fd()) sends no kWake. The receiver then
//   sleeps on both descriptors.
// - A carrier that fails is left. The end that notices leaves as a receiver, and asks the other end
//   to leave. The other end does the same when it gets kLeave or kAsk.
// - An end that dies during a change ends the socket, and so the connection.
//
// The receiver notices requests, and the sender fulfils them: the thread in send(), or the
// receiving thread while no thread sends. The receiving thread never waits for room in the socket,
// because two ends could then wait for each other.
#pragma once

#include <memory>
#include <string>

#include "transport/carrier/carrier.h"
#include "transport/carrier/socket.h"
#include "transport/transport.h"

namespace gpurun::transport::carrier {

// How often a receiver has changed.
struct Changes {
  std::uint64_t entered = 0;
  std::uint64_t left = 0;
};

class CarriedConnection : public Connection {
 public:
  // Lets both ends leave the carrier, or enter it again. The changes follow while both ends
  // receive. Any thread. kUnavailable: the other end does not know changes.
  virtual Status leave() = 0;
  virtual Status enter() = 0;
  // Does what the other end has asked for, without waiting and without bytes, and leaves a carrier
  // that has failed. For an owner that does not receive now. Call it as receive(), when the socket
  // has bytes, when it has room while wants_room(), and now and then because of the carrier.
  virtual Status attend() = 0;
  virtual bool wants_room() const noexcept = 0;
  // Of this end's receiver. Any thread.
  virtual Changes changes() const noexcept = 0;
  // For people: why this end's receiver has left. Empty: it never has. Any thread.
  virtual std::string why_left() const = 0;
  // That of its carrier, whether or not the connection uses the carrier now. It ends with the
  // connection. nullptr: the carrier has no remote memory.
  virtual RemoteMemory* remote_memory() noexcept = 0;
};

// That of a carried connection. nullptr for all others.
RemoteMemory* remote_memory_of(Connection& connection) noexcept;

struct CarrierOptions {
  // The other end knows every record of control.h. Otherwise it knows kWake alone, and the
  // connection never leaves its carrier.
  bool may_change = false;
  // Both ends must agree. Otherwise they begin over the socket, and enter() follows.
  bool begins_by_carrier = true;
};

// All bytes that were meant for `socket` itself must have been received before.
std::unique_ptr<CarriedConnection> carry(std::unique_ptr<Socket> socket,
                                         std::unique_ptr<Carrier> carrier,
                                         const Capabilities& capabilities,
                                         const CarrierOptions& options);

}  // namespace gpurun::transport::carrier
