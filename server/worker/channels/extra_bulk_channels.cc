// ExtraBulkChannels: takes one connection after another. A slow handshake delays only the session
// of its own client.
#include "server/worker/channels/extra_bulk_channels.h"

#include <spdlog/spdlog.h>
#include <sys/socket.h>

#include <system_error>
#include <utility>

#include "base/thread_name.h"
#include "protocol/control/control.h"
#include "server/bulk/bulk_lanes.h"
#include "server/handover/spawn_extra_bulk.h"
#include "server/worker/channels/carrier_changes.h"
#include "server/worker/channels/channel_security.h"
#include "transport/shm/connection.h"
#include "transport/sockets/connection.h"

namespace gpurun::server {
namespace {

HandOver without_connections(const HandOver& from) {
  HandOver copy;
  copy.session = from.session;
  copy.key = from.key;
  copy.encrypted = from.encrypted;
  copy.lease = from.lease;
  copy.ticket = from.ticket;
  return copy;
}

}  // namespace

ExtraBulkChannels::ExtraBulkChannels(UniqueFd socket, const HandOver& hand_over)
    : socket_(std::move(socket)), session_(without_connections(hand_over)) {}

Status ExtraBulkChannels::start(BulkLanes& lanes) {
  try {
    thread_ = std::thread([this, &lanes] { run(lanes); });
  } catch (const std::system_error& error) {
    return Status(Code::kResourceExhausted, error.what());
  }
  return {};
}

void ExtraBulkChannels::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    if (in_handshake_ != nullptr) in_handshake_->shut_down();
  }
  shutdown(socket_.get(), SHUT_RD);  // Wakes the thread that waits for the next connection.
  if (thread_.joinable()) thread_.join();
}

void ExtraBulkChannels::run(BulkLanes& lanes) {
  name_this_thread("gpurun-late");
  while (!stopping_) {
    const Status taken = take_next(lanes);
    if (taken.code() == Code::kUnavailable) return;
    if (!taken.ok() && !stopping_)
      spdlog::warn("a further connection is not taken: {}", taken.to_string());
  }
}

// kUnavailable: gpurund passes on no more connections.
Status ExtraBulkChannels::take_next(BulkLanes& lanes) {
  UniqueFd fd;
  const Result<Joining> joining = receive_joining(socket_.get(), &fd);
  if (joining.status().code() == Code::kProtocol) return joining.status();
  if (!joining.ok()) return Status(Code::kUnavailable, joining.status().message());
  Result<std::unique_ptr<transport::Connection>> adopted =
      transport::sockets::SocketConnection::adopt(std::move(fd), {.patient = true});
  if (!adopted.ok()) return adopted.status();
  std::unique_ptr<transport::Connection> connection = *std::move(adopted);
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return {};
    in_handshake_ = connection.get();  // It stays alive below the encryption.
  }
  const Deadline deadline = Deadline::in(std::chrono::seconds(limits::kHandshakeDeadlineS));
  Result<protocol::Key> key = joining->key;
  if (session_.encrypted) key = secure_late(session_, joining->index, &connection, deadline);
  // The answer goes over it unchanged, whatever carries the bytes of its calls.
  transport::Connection& answered = *connection;
  UniqueFd file;
  const Status shared = key.ok() ? transport::shm::share_offered(connection, deadline, &file,
                                                                 carrier_options(session_))
                                 : key.status();
  {
    const std::lock_guard lock(mutex_);
    in_handshake_ = nullptr;
  }
  if (!shared.ok()) return shared;
  const auto answer = [&](const protocol::ControlMessage& words) {
    return protocol::send_control(answered, words, *key, protocol::Sender::kServer, joining->index,
                                  deadline);
  };
  const protocol::Joined joined{std::thread::hardware_concurrency()};
  if (file.valid()) {
    const Status taken = take_file_
                             ? take_file_(std::move(file))
                             : Status(Code::kInvalidArgument, "no memory file is taken here");
    if (taken.ok()) return answer(joined);
    static_cast<void>(answer(protocol::Refused{taken.message()}));
    return taken;
  }
  Status said;
  const bool added = lanes.add(std::move(connection), [&](transport::Connection&) {
    said = answer(joined);
    return said;
  });
  return added || !said.ok() ? said : Status(Code::kResourceExhausted, "the session has enough");
}

}  // namespace gpurun::server
