// What the daemon says on one connection: the handshake, and a control link until it ends.
#include <errno.h>
#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "server/daemon/daemon.h"
#include "server/daemon/daemon_half_open.h"

namespace gpurun::server {
namespace {

using protocol::ControlFrame;
using protocol::ControlMessage;
using protocol::Sender;

// The longest time that a request may wait for GPUs.
constexpr std::uint64_t kWaitMillisecondsMax = std::uint64_t{7} * 24 * 3600 * 1000;

// For the workers of a lease to end; they are killed.
constexpr std::chrono::seconds kFreeDeadline{10};
// Likewise, for a request that would not wait otherwise: its client does not wait for ever either.
constexpr std::chrono::seconds kFollowDeadline{5};

// A refusal is a courtesy: whether it arrives changes nothing.
void refuse(transport::Connection& connection, const std::string& reason, Deadline deadline) {
  static_cast<void>(protocol::send_control(connection, protocol::Refused{reason}, deadline));
}

// What a client may say behind a hello without waiting for an answer: a token's proof and a
// request.
constexpr std::size_t kSaidWithHelloBytesMax =
    2 * (protocol::kControlHeaderBytes + limits::kHelloBytesMax + sizeof(protocol::Tag));

// Of a client that may not have said all yet. To close with something of it unread would throw away
// the refusal (TCP resets the connection then), so it is heard until the client has gone, within
// bounds; it remains a stranger meanwhile, who makes room for others.
void refuse_and_hear_out(transport::Connection& connection, const std::string& reason,
                         Deadline to_send, Deadline deadline) {
  refuse(connection, reason, to_send);
  shutdown(connection.fd(), SHUT_WR);
  std::array<std::byte, limits::kHelloBytesMax> dropped;
  for (std::size_t heard = 0; heard < kSaidWithHelloBytesMax;) {
    const Result<std::size_t> got = connection.receive(dropped, 1, deadline);
    if (!got.ok()) return;
    heard += *got;
  }
}

// Waits until `fd` is readable, `link` has something to say or `stay` is to end: true for the
// first.
Result<bool> wait_readable(int fd, const transport::Connection& link, const UserBook::Stay& stay,
                           Deadline deadline) {
  const Status left(Code::kPeerGone, "the client has left the queue");
  if (link.holds_received()) return left;  // It came with the request: no descriptor tells of it.
  while (true) {
    pollfd all[] = {{fd, POLLIN, 0}, {link.fd(), POLLIN | POLLRDHUP, 0}, {stay.fd(), POLLIN, 0}};
    const int ready = poll(all, 3, deadline.poll_timeout_ms());
    if (ready < 0 && errno != EINTR) return Status::from_errno(errno, "poll");
    if (all[1].revents != 0) return left;
    if (all[2].revents != 0) return Status(Code::kRefused, stay.why_ended());
    if (all[0].revents != 0) return true;
    if (deadline.passed()) return false;
  }
}

}  // namespace

void Daemon::serve(std::unique_ptr<transport::Connection>& connection) {
  HalfOpen half_open(*this, connection.get());
  const Deadline deadline = handshake();
  const Result<bool> tls = begins_with_tls(*connection, deadline);
  if (!tls.ok()) {
    return spdlog::info("{}: {}", connection->description(), tls.status().to_string());
  }
  if (*tls) return serve_tls(connection, half_open, deadline);
  serve_link(connection, half_open, {}, deadline);
}

void Daemon::serve_link(std::unique_ptr<transport::Connection>& connection, HalfOpen& half_open,
                        const Exporter& exporter, Deadline deadline) {
  const std::string peer = connection->description();
  const Result<ControlFrame> frame =
      protocol::receive_control(*connection, limits::kHelloBytesMax, deadline);
  if (!frame.ok()) return spdlog::info("{}: {}", peer, frame.status().to_string());
  const Result<ControlMessage> message = protocol::decode(frame->payload);
  if (!message.ok()) return spdlog::info("{}: {}", peer, message.status().to_string());
  const bool encrypted = exporter.has_value();
  if (const Status allowed = check_plaintext(*connection); !encrypted && !allowed.ok()) {
    spdlog::warn("{}: speaks no TLS", peer);
    return refuse(*connection, allowed.message(), handshake());
  }
  if (const auto* hello = std::get_if<protocol::Hello>(&*message)) {
    serve_control(*connection, *hello, half_open, exporter, deadline);
  } else if (const auto* attach = std::get_if<protocol::Attach>(&*message);
             attach != nullptr && !encrypted) {
    serve_attach(connection, *frame, *attach);
  } else {
    spdlog::info("{}: neither hello nor attach", peer);
  }
}

void Daemon::serve_attach(std::unique_ptr<transport::Connection>& connection,
                          const ControlFrame& frame, const protocol::Attach& attach) {
  const std::string peer = connection->description();
  const auto no = [&](const Status& why) {
    spdlog::warn("{}: attach: {}", peer, why.message());
    audit_refusal("attach.refused", {{"from", peer}, {"reason", why.message()}});
    refuse(*connection, why.message(), handshake());
  };
  const Status version = protocol::check_version(attach.version, "client");
  if (!version.ok()) return no(version);
  const Result<protocol::Key> key = book_.attach_key(attach);
  if (!key.ok()) return no(key.status());
  if (!protocol::proved(frame, *key, Sender::kClient, attach.index)) {
    return no(Status(Code::kRefused, "the ticket is not proved"));
  }
  heed_tokens();  // A lease of a token that is revoked takes nobody in from that moment.
  forget_stranger(connection.get());
  forget_link(connection.get());
  if (const Status taken = take_in(attach, *key, connection, false); !taken.ok()) no(taken);
}

Status Daemon::take_in(const protocol::Attach& attach, const protocol::Key& key,
                       std::unique_ptr<transport::Connection>& connection, bool encrypted) {
  const Result<bool> joins = book_.join(attach, encrypted);
  if (!joins.ok()) return joins.status();
  if (*joins) {
    post(JoiningConnection{attach.lease, attach.session, attach.index,
                           encrypted ? protocol::Key{} : key, encrypted, std::move(connection)});
    return Status();
  }
  Result<std::optional<Arrival>> arrival = book_.arrive(attach, key, connection, encrypted);
  if (!arrival.ok()) return arrival.status();
  if (arrival->has_value()) post(std::move(**arrival));
  return Status();
}

Result<std::shared_ptr<Claim>> Daemon::wait_for_devices(transport::Connection& connection,
                                                        const protocol::LeaseRequest& request,
                                                        const protocol::Key& key,
                                                        const UserBook::Stay& stay,
                                                        std::uint64_t& sent) {
  Result<std::shared_ptr<Claim>> claim = queue_.claim(request.devices);
  if (!claim.ok() || (*claim)->granted()) return claim;
  if (request.wait_milliseconds == 0 && (*claim)->comes_soon()) {
    const Result<bool> granted =
        wait_readable((*claim)->fd(), connection, stay, Deadline::in(kFollowDeadline));
    if (!granted.ok()) return granted.status();
    if (*granted) return claim;
  }
  if (request.wait_milliseconds > 0) {
    GPURUN_RETURN_IF_ERROR(protocol::send_control(connection, protocol::Queued{(*claim)->ahead()},
                                                  key, Sender::kServer, sent++, handshake()));
    const std::uint64_t wait = std::min(request.wait_milliseconds, kWaitMillisecondsMax);
    const Result<bool> granted = wait_readable((*claim)->fd(), connection, stay,
                                               Deadline::in(std::chrono::milliseconds(wait)));
    if (!granted.ok()) return granted.status();
    if (*granted) return claim;
  }
  const std::string wanted = options_.devices == 1
                                 ? "its GPU is"
                                 : std::to_string(request.devices) + " of its " +
                                       std::to_string(options_.devices) + " GPUs are";
  return Status(Code::kRefused, wanted + " not free" +
                                    (request.wait_milliseconds > 0 ? " within the time to wait"
                                                                   : "; --timeout waits for it"));
}

void Daemon::serve_control(transport::Connection& connection, const protocol::Hello& hello,
                           HalfOpen& half_open, const Exporter& exporter, Deadline deadline) {
  const std::string& peer = connection.description();
  const Status version = protocol::check_version(hello.version, "client");
  if (!version.ok()) {
    spdlog::warn("{}: {}", peer, version.message());
    return refuse_and_hear_out(connection, version.message(), handshake(), deadline);
  }
  const Result<Asked> asked = identify(connection, hello, exporter, deadline);
  if (!asked.ok() && asked.status().code() == Code::kRefused) {
    const std::string& why = asked.status().message();
    spdlog::warn("{}: {}", peer, why);
    audit_refusal("link.refused", {{"from", peer}, {"reason", why}});
    return refuse(connection, why, handshake());
  }
  if (!asked.ok()) return spdlog::info("{}: {}", peer, asked.status().to_string());
  half_open.proved();
  const Result<ControlMessage> message = protocol::decode(asked->request);
  if (!message.ok()) return;
  if (const auto* request = std::get_if<protocol::LeaseRequest>(&*message)) {
    hold_lease(connection, *request, *asked);
  } else if (std::holds_alternative<protocol::ListRequest>(*message)) {
    static_cast<void>(
        protocol::send_control(connection, listing(), asked->key, Sender::kServer, 0, handshake()));
  }
}

void Daemon::hold_lease(transport::Connection& connection, const protocol::LeaseRequest& request,
                        const Asked& asked) {
  const protocol::Key& key = asked.key;
  const User& user = asked.user;
  const std::string& peer = connection.description();
  const Result<protocol::Nonce> challenge = protocol::random_array<protocol::Nonce>();
  const Result<protocol::Id> id = protocol::random_array<protocol::Id>();
  const Result<protocol::Id> ticket = protocol::random_array<protocol::Id>();
  if (!challenge.ok() || !id.ok() || !ticket.ok()) return;
  std::uint64_t sent = 0;
  const auto say = [&](const ControlMessage& words) {
    return protocol::send_control(connection, words, key, Sender::kServer, sent++, handshake());
  };
  const auto no_lease = [&](const Status& why) {
    spdlog::info("{}: no lease for {}: {}", peer, user.described(), why.message());
    audit_refusal(
        "lease.refused",
        {{"user", user.name}, {"token", user.token}, {"from", peer}, {"reason", why.message()}});
    static_cast<void>(say(protocol::Refused{why.message()}));
  };
  settle_ended_links();
  const Result<std::unique_ptr<UserBook::Stay>> stay = users_.enter(user, request.devices);
  if (!stay.ok()) return no_lease(stay.status());
  // From here on it is told when its token is revoked; so it must not have been until here.
  if (const Status valid = check_still_valid(user); !valid.ok()) return no_lease(valid);
  Result<std::shared_ptr<Claim>> claim = wait_for_devices(connection, request, key, **stay, sent);
  if (!claim.ok()) return no_lease(claim.status());
  const std::weak_ptr<Claim> held = *claim;
  const auto returned = (*claim)->returned();
  std::string gpus;
  for (const int device : (*claim)->devices()) {
    gpus += (gpus.empty() ? "" : ",") + std::to_string(device);
  }
  const protocol::Grant grant{*id,
                              *ticket,
                              *challenge,
                              request.devices,
                              models_of((*claim)->devices()),
                              all_emulated((*claim)->devices())};
  LeaseBegun begun{*id, *claim, user};
  book_.add({*id, *ticket, *challenge, protocol::ticket_key(protocol::lease_key(key, *id), *ticket),
             *std::move(claim), peer, user});
  post(std::move(begun));
  const std::string lease = protocol::hex_of(bytes_of(*id));
  spdlog::info("{}: lease of {} GPUs for {}", peer, request.devices, user.described());
  audit("lease.granted", {{"user", user.name},
                          {"token", user.token},
                          {"from", peer},
                          {"lease", lease},
                          {"gpus", gpus}});
  if (say(grant).ok()) tell_deaths(connection, *id, asked, **stay, sent);
  if (const std::shared_ptr<Claim> still = held.lock(); still != nullptr) still->end();
  (*stay)->leave();
  {
    const std::lock_guard lock(lease_links_mutex_);
    lease_links_.erase(*id);
  }
  link_ended_.notify_all();
  book_.remove(*id);
  post(LeaseEnded{*id});
  wait_until_free(*returned);
  spdlog::info("{}: lease of {} ended", peer, user.described());
  audit("lease.ended", {{"user", user.name},
                        {"token", user.token},
                        {"from", peer},
                        {"lease", lease},
                        {"reason", (*stay)->why_ended()}});
}

// Until the peer says anything or is gone, or its user's token is revoked, which ends its lease;
// end_all()'s shut_down() is that, too, and keep-alive says it when the client's machine has gone.
// What came with the request and is none of it was said, too.
void Daemon::tell_deaths(transport::Connection& connection, const protocol::Id& lease,
                         const Asked& asked, UserBook::Stay& stay, std::uint64_t sent) {
  if (connection.holds_received()) return;
  const auto say = [&](const ControlMessage& words) {
    return protocol::send_control(connection, words, asked.key, Sender::kServer, sent++,
                                  handshake());
  };
  const int wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake < 0) spdlog::warn("a client will not hear of deaths: {}", std::strerror(errno));
  {
    const std::lock_guard lock(lease_links_mutex_);
    lease_links_.emplace(lease, Link{connection.fd(), UniqueFd(wake), {}});
  }
  // Once a frame has not gone out whole, none may follow it.
  for (bool heard = true;;) {
    pollfd all[] = {{connection.fd(), POLLIN | POLLRDHUP, 0},
                    {heard ? wake : -1, POLLIN, 0},
                    {stay.fd(), POLLIN, 0}};
    if (poll(all, 3, -1) < 0 && errno != EINTR) break;
    if (all[0].revents != 0) break;
    if (all[2].revents != 0) {
      if (heard) static_cast<void>(say(protocol::Refused{stay.why_ended()}));
      break;
    }
    if (all[1].revents == 0) continue;
    std::vector<protocol::WorkerEnded> deaths;
    {
      const std::lock_guard lock(lease_links_mutex_);
      deaths.swap(lease_links_.find(lease)->second.deaths);
      eventfd_t count = 0;
      eventfd_read(wake, &count);
    }
    for (const protocol::WorkerEnded& death : deaths) heard = heard && say(death).ok();
  }
}

// Whoever has hung up by now holds nothing: a client says so and goes, and the next one may follow
// at once. Waits for the threads of such links.
void Daemon::settle_ended_links() {
  std::unique_lock lock(lease_links_mutex_);
  std::vector<protocol::Id> leases;
  std::vector<pollfd> links;
  for (const auto& [lease, link] : lease_links_) {
    leases.push_back(lease);
    links.push_back({link.fd, POLLIN | POLLRDHUP, 0});
  }
  if (poll(links.data(), links.size(), 0) <= 0) return;
  link_ended_.wait_for(lock, kFollowDeadline, [&] {
    for (std::size_t i = 0; i < links.size(); ++i) {
      if (links[i].revents != 0 && lease_links_.count(leases[i]) != 0) return stopping_.load();
    }
    return true;
  });
}

// Each name once, in the order of the devices.
std::vector<std::string> Daemon::models_of(const std::vector<int>& devices) const {
  std::vector<std::string> models;
  for (const int device : devices) {
    const auto index = static_cast<std::size_t>(device);
    if (index >= options_.device_facts.size()) continue;
    const std::string& name = options_.device_facts[index].name;
    if (std::find(models.begin(), models.end(), name) == models.end()) models.push_back(name);
  }
  return models;
}

bool Daemon::all_emulated(const std::vector<int>& devices) const {
  return std::all_of(devices.begin(), devices.end(), [this](int device) {
    const auto index = static_cast<std::size_t>(device);
    return index < options_.device_facts.size() && options_.device_facts[index].emulated;
  });
}

// The link stays until then: who waits for its end finds the GPUs free.
void Daemon::wait_until_free(const std::atomic<bool>& returned) {
  std::unique_lock lock(lease_links_mutex_);
  claims_dropped_.wait_for(lock, kFreeDeadline, [&] { return returned || stopping_; });
}

protocol::Listing Daemon::listing() {
  protocol::Listing listing;
  listing.release = protocol::kRelease;
  listing.confinement = options_.confinement;
  listing.waiting = static_cast<std::uint32_t>(queue_.waiting());
  listing.gpus.resize(options_.devices);
  for (std::size_t i = 0; i < options_.device_facts.size() && i < listing.gpus.size(); ++i) {
    listing.gpus[i].name = options_.device_facts[i].name;
    listing.gpus[i].memory_bytes = options_.device_facts[i].memory_bytes;
  }
  const std::vector<HeldLease> held = book_.held();
  listing.leases = static_cast<std::uint32_t>(held.size());
  listing.gathering = static_cast<std::uint32_t>(book_.gathering());
  listing.half_open = static_cast<std::uint32_t>(half_open());
  listing.spare_workers = static_cast<std::uint32_t>(spare_count_.load());
  const std::lock_guard lock(lease_links_mutex_);
  for (const auto& [lease, workers] : worker_counts_) listing.workers += workers;
  for (const HeldLease& lease : held) {
    const auto workers = worker_counts_.find(lease.id);
    for (const int device : lease.devices) {
      protocol::ListedGpu& gpu = listing.gpus[static_cast<std::size_t>(device)];
      gpu.holder = lease.holder;
      gpu.user = lease.user;
      gpu.held_seconds = static_cast<std::uint64_t>(lease.held.count());
      gpu.workers = workers == worker_counts_.end() ? 0 : workers->second;
    }
  }
  return listing;
}

}  // namespace gpurun::server
