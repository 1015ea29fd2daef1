// Daemon: how connections come in. They are accepted at once and sorted by what they have sent. A
// thread of its own serves each when there is a place for it.
#include <errno.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "protocol/control/session_identity.h"
#include "server/daemon/daemon.h"
#include "server/daemon/daemon_half_open.h"
#include "server/daemon/links/peer_source.h"
#include "transport/tls/client_hello.h"

namespace gpurun::server {
namespace {

namespace tls = transport::tls;

// How often sessions with missing connections are checked.
constexpr int kLookMilliseconds = 1000;
// For one listener in one turn, so that other work of the daemon has its turn, too.
constexpr int kAcceptedAtOnceMax = 64;
// Connections that wait for their close. Above this number no further ones are accepted.
constexpr std::size_t kClosingMax = 1024;
// Delay after a lack of descriptors, because no event reports its end.
constexpr std::chrono::milliseconds kAcceptAgain{50};

}  // namespace

Status Daemon::open_doors() {
  AdmissionLimits limits;
  limits.places = options_.half_open_max;
  limits.places_of_source = options_.half_open_of_source;
  limits.grace = options_.half_open_grace;
  limits.deadline = options_.handshake_deadline;
  for (transport::Listener* listener : {listener_.get(), options_.local.get()}) {
    if (listener == nullptr) continue;
    auto admission = HandshakeAdmission::create(
        limits,
        [this](const transport::Connection& connection) { return shows_ticket(connection); },
        closer_);
    if (!admission.ok()) return admission.status();
    doors_.push_back({listener, *std::move(admission)});
  }
  return {};
}

std::size_t Daemon::half_open() const noexcept {
  std::size_t count = 0;
  for (const Door& door : doors_) count += door.admission->count();
  return count;
}

// Sooner than usual when a worker is missing, or a connection waits for a place.
int Daemon::milliseconds_to_look() {
  int milliseconds = kLookMilliseconds;
  const int refill = spares_.milliseconds_to_refill();
  if (refill >= 0) milliseconds = std::min(milliseconds, refill);
  for (const Door& door : doors_) {
    const int room = door.admission->make_room();
    if (room >= 0) milliseconds = std::min(milliseconds, room);
  }
  if (!accepts()) milliseconds = std::min<int>(milliseconds, kAcceptAgain.count());
  return milliseconds;
}

bool Daemon::accepts() const {
  return closer_.backlog() < kClosingMax && std::chrono::steady_clock::now() >= accepts_from_;
}

Status Daemon::look_at(Door& door, bool somebody_came) {
  if (somebody_came) GPURUN_RETURN_IF_ERROR(accept_all(door));
  door.admission->look();
  while (true) {
    HandshakeAdmission::Admitted admitted = door.admission->next();
    if (admitted.connection == nullptr) return {};
    serve_apart(*door.admission, std::move(admitted));
  }
}

Status Daemon::accept_all(Door& door) {
  for (int i = 0; i < kAcceptedAtOnceMax; ++i) {
    // It was readable a moment ago, but the peer may have left since.
    Result<std::unique_ptr<transport::Connection>> accepted =
        door.listener->accept(Deadline::in(std::chrono::milliseconds(0)));
    if (!accepted.ok()) {
      if (accepted.status().code() == Code::kDeadline) return {};
      if (accepted.status().code() != Code::kResourceExhausted) return accepted.status();
      spdlog::warn("accept: {}", accepted.status().message());
      // Let present connections finish, instead of spinning on a listener that stays readable.
      accepts_from_ = std::chrono::steady_clock::now() + kAcceptAgain;
      return {};
    }
    const std::string source = source_of((*accepted)->fd());
    door.admission->add(*std::move(accepted), source);
  }
  return {};
}

void Daemon::serve_apart(HandshakeAdmission& admission, HandshakeAdmission::Admitted admitted) {
  transport::Connection* link = admitted.connection.get();
  {
    const std::lock_guard lock(mutex_);
    links_.insert(link);
    ++threads_;
  }
  // Shared, so that the connection can still be closed when no thread starts.
  const auto box =
      std::make_shared<std::unique_ptr<transport::Connection>>(std::move(admitted.connection));
  try {
    std::thread([this, link, &admission, box, deadline = admitted.deadline]() mutable {
      std::unique_ptr<transport::Connection> connection = std::move(*box);
      {
        HalfOpen half_open(*this, admission, link);
        serve(connection, half_open, deadline);
      }
      // Behind TLS another connection owns this one.
      if (connection != nullptr) forget_link(link);
      connection.reset();
      // Notify under the lock: the daemon may be destroyed right after it.
      const std::lock_guard lock(mutex_);
      --threads_;
      thread_ended_.notify_all();
    }).detach();
  } catch (const std::system_error& error) {
    spdlog::warn("no thread for a connection: {}", error.what());
    admission.leave(link);
    forget_link(link);
    closer_.close(std::move(*box));
    const std::lock_guard lock(mutex_);
    --threads_;
  }
}

namespace {

// The control frame at the start of `bytes`. Nothing: not a control frame, or not whole yet.
std::optional<protocol::ControlFrame> whole_frame(ByteView bytes) {
  if (bytes.size() < protocol::kControlHeaderBytes) return std::nullopt;
  const auto header = protocol::parse_control_header(bytes.first(protocol::kControlHeaderBytes),
                                                     limits::kHelloBytesMax);
  bytes = bytes.subspan(protocol::kControlHeaderBytes);
  protocol::Tag tag;
  if (!header.ok() || header->tag_bytes != tag.size() ||
      bytes.size() < header->payload_bytes + tag.size()) {
    return std::nullopt;
  }
  const ByteView payload = bytes.first(header->payload_bytes);
  const ByteView rest = bytes.subspan(header->payload_bytes, tag.size());
  std::memcpy(tag.data(), rest.data(), tag.size());
  return protocol::ControlFrame{Bytes(payload.begin(), payload.end()), tag};
}

}  // namespace

// This only decides which kind of place the connection takes. Its own thread, or its worker, checks
// the proof again.
bool Daemon::shows_ticket(const transport::Connection& connection) const {
  std::array<std::byte,
             protocol::kControlHeaderBytes + limits::kHelloBytesMax + sizeof(protocol::Tag)>
      seen;
  const ssize_t got = recv(connection.fd(), seen.data(), seen.size(), MSG_PEEK | MSG_DONTWAIT);
  if (got <= 0) return false;
  const ByteView bytes = ByteView(seen).first(static_cast<std::size_t>(got));
  if (bytes.front() == tls::kHandshakeByte) {
    if (bytes.size() < tls::kHelloHeadBytes) return false;
    const Result<std::size_t> whole = tls::hello_record_bytes(bytes);
    if (!whole.ok() || *whole > bytes.size()) return false;
    const Result<std::optional<tls::KeyOffer>> offer = tls::read_key_offer(bytes.first(*whole));
    if (!offer.ok() || !*offer) return false;
    const auto identity = protocol::decode_identity((*offer)->identity);
    if (!identity) return false;
    const Result<protocol::Key> key = book_.tls_key(*identity);
    return key.ok() && tls::binder_proves(**offer, *key);
  }
  const std::optional<protocol::ControlFrame> frame = whole_frame(bytes);
  if (!frame) return false;
  const Result<protocol::ControlMessage> message = protocol::decode(frame->payload);
  const auto* attach = message.ok() ? std::get_if<protocol::Attach>(&*message) : nullptr;
  if (attach == nullptr) return false;
  const Result<protocol::Key> key = book_.attach_key(*attach);
  return key.ok() && protocol::proved(*frame, *key, protocol::Sender::kClient, attach->index);
}

}  // namespace gpurun::server
