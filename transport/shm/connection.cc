// Connection in shared memory: puts the rings on the socket.
#include "transport/shm/connection.h"

#include <utility>

namespace gpurun::transport::shm {

Result<std::unique_ptr<Connection>> share(std::unique_ptr<Connection> socket, SharedMemory memory,
                                          Side side, const carrier::CarrierOptions& options) {
  if (!memory.is_there()) return socket;
  auto* const concrete = dynamic_cast<sockets::SocketConnection*>(socket.get());
  if (concrete == nullptr) {
    return Status(Code::kInvalidArgument, socket->description() + ": no local socket");
  }
  auto rings = std::make_unique<RingCarrier>(std::move(memory), side);
  static_cast<void>(socket.release());
  Capabilities capabilities;
  capabilities.same_host = true;
  capabilities.shares_memory = true;
  return std::unique_ptr<Connection>(
      carrier::carry(carrier::plain_socket(std::unique_ptr<sockets::SocketConnection>(concrete)),
                     std::move(rings), capabilities, options));
}

Status share_offered(std::unique_ptr<Connection>& connection, Deadline deadline, UniqueFd* file,
                     const carrier::CarrierOptions& options) {
  if (!is_local(*connection)) return {};
  Result<SharedMemory> memory = take_offer(*connection, deadline, file);
  if (!memory.ok()) return memory.status();
  auto shared = share(std::move(connection), *std::move(memory), Side::kTook, options);
  if (!shared.ok()) return shared.status();
  connection = *std::move(shared);
  return {};
}

}  // namespace gpurun::transport::shm
