// What the daemon says on one connection: the handshake, and a control link until it ends.
#include <errno.h>
#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/eventfd.h>

#include <algorithm>
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

// A refusal is a courtesy: whether it arrives changes nothing.
void refuse(transport::Connection& connection, const std::string& reason, Deadline deadline) {
  static_cast<void>(protocol::send_control(connection, protocol::Refused{reason}, deadline));
}

// Waits until `fd` is readable or `link` has something to say: true for the first.
Result<bool> wait_readable(int fd, int link, Deadline deadline) {
  while (true) {
    pollfd both[] = {{fd, POLLIN, 0}, {link, POLLIN | POLLRDHUP, 0}};
    const int ready = poll(both, 2, deadline.poll_timeout_ms());
    if (ready < 0 && errno != EINTR) return Status::from_errno(errno, "poll");
    if (both[1].revents != 0) return Status(Code::kPeerGone, "the client has left the queue");
    if (both[0].revents != 0) return true;
    if (deadline.passed()) return false;
  }
}

}  // namespace

void Daemon::serve(std::unique_ptr<transport::Connection>& connection) {
  HalfOpen half_open(*this);
  const std::string peer = connection->description();
  const Result<ControlFrame> frame =
      protocol::receive_control(*connection, limits::kHelloBytesMax, handshake());
  if (!frame.ok()) return spdlog::info("{}: {}", peer, frame.status().to_string());
  const Result<ControlMessage> message = protocol::decode(frame->payload);
  if (!message.ok()) return spdlog::info("{}: {}", peer, message.status().to_string());
  if (const auto* hello = std::get_if<protocol::Hello>(&*message)) {
    serve_control(*connection, *hello, half_open);
  } else if (const auto* attach = std::get_if<protocol::Attach>(&*message)) {
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
    refuse(*connection, why.message(), handshake());
  };
  const Status version = protocol::check_version(attach.version, "client");
  if (!version.ok()) return no(version);
  const Result<protocol::Key> key = book_.attach_key(attach);
  if (!key.ok()) return no(key.status());
  if (!protocol::proved(frame, *key, Sender::kClient, attach.index)) {
    return no(Status(Code::kRefused, "the ticket is not proved"));
  }
  forget_link(connection.get());
  Result<std::optional<Arrival>> arrival = book_.arrive(attach, *key, connection);
  if (!arrival.ok()) return no(arrival.status());
  if (arrival->has_value()) post(std::move(**arrival));
}

Result<std::shared_ptr<Claim>> Daemon::wait_for_devices(transport::Connection& connection,
                                                        const protocol::LeaseRequest& request,
                                                        const protocol::Key& key,
                                                        std::uint64_t& sent) {
  Result<std::shared_ptr<Claim>> claim = queue_.claim(request.devices);
  if (!claim.ok() || (*claim)->granted()) return claim;
  if (request.wait_milliseconds > 0) {
    GPURUN_RETURN_IF_ERROR(protocol::send_control(connection, protocol::Queued{(*claim)->ahead()},
                                                  key, Sender::kServer, sent++, handshake()));
    const std::uint64_t wait = std::min(request.wait_milliseconds, kWaitMillisecondsMax);
    const Result<bool> granted = wait_readable((*claim)->fd(), connection.fd(),
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
                           HalfOpen& half_open) {
  const std::string& peer = connection.description();
  const Status version = protocol::check_version(hello.version, "client");
  if (!version.ok()) {
    spdlog::warn("{}: {}", peer, version.message());
    return refuse(connection, version.message(), handshake());
  }
  const Result<protocol::Nonce> nonce = protocol::random_array<protocol::Nonce>();
  if (!nonce.ok()) return;
  const protocol::Key key =
      protocol::link_key(options_.secret, protocol::Link::kControl, *nonce, hello.nonce, {});
  if (!protocol::send_control(connection,
                              protocol::Challenge{protocol::our_version(Sender::kServer), *nonce},
                              handshake())
           .ok()) {
    return;
  }
  // The request is the proof. A client may take its time to ask, but not unproved for ever.
  const Result<ControlFrame> frame =
      protocol::receive_control(connection, limits::kHelloBytesMax, handshake());
  if (!frame.ok()) return spdlog::info("{}: {}", peer, frame.status().to_string());
  if (!protocol::proved(*frame, key, Sender::kClient, 0)) {
    spdlog::warn("{}: does not know the secret", peer);
    return refuse(connection, "the secret is wrong", handshake());
  }
  half_open.proved();
  const Result<ControlMessage> message = protocol::decode(frame->payload);
  if (!message.ok()) return;
  if (const auto* request = std::get_if<protocol::LeaseRequest>(&*message)) {
    hold_lease(connection, *request, key);
  } else if (std::holds_alternative<protocol::ListRequest>(*message)) {
    static_cast<void>(
        protocol::send_control(connection, listing(), key, Sender::kServer, 0, handshake()));
  }
}

void Daemon::hold_lease(transport::Connection& connection, const protocol::LeaseRequest& request,
                        const protocol::Key& key) {
  const std::string& peer = connection.description();
  const Result<protocol::Nonce> challenge = protocol::random_array<protocol::Nonce>();
  const Result<protocol::Id> id = protocol::random_array<protocol::Id>();
  const Result<protocol::Id> ticket = protocol::random_array<protocol::Id>();
  if (!challenge.ok() || !id.ok() || !ticket.ok()) return;
  std::uint64_t sent = 0;
  const auto say = [&](const ControlMessage& words) {
    return protocol::send_control(connection, words, key, Sender::kServer, sent++, handshake());
  };
  Result<std::shared_ptr<Claim>> claim = wait_for_devices(connection, request, key, sent);
  if (!claim.ok()) {
    spdlog::info("{}: no lease: {}", peer, claim.status().message());
    static_cast<void>(say(protocol::Refused{claim.status().message()}));
    return;
  }
  const auto returned = (*claim)->returned();
  const protocol::Grant grant{*id, *ticket, *challenge, request.devices,
                              models_of((*claim)->devices())};
  book_.add({*id, *ticket, *challenge, protocol::ticket_key(protocol::lease_key(key, *id), *ticket),
             *std::move(claim), peer});
  spdlog::info("{}: lease of {} GPUs", peer, request.devices);
  if (say(grant).ok()) tell_deaths(connection, *id, key, sent);
  book_.remove(*id);
  post(LeaseEnded{*id});
  wait_until_free(*returned);
  spdlog::info("{}: lease ended", peer);
}

// Until the peer says anything or is gone, which ends its lease; end_all()'s shut_down() is that,
// too, and keep-alive says it when the client's machine has gone. Nothing is read: a connection
// that has seen the end hangs up, which the peer is to see only when its GPUs are free.
void Daemon::tell_deaths(transport::Connection& connection, const protocol::Id& lease,
                         const protocol::Key& key, std::uint64_t sent) {
  const int wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake < 0) spdlog::warn("a client will not hear of deaths: {}", std::strerror(errno));
  {
    const std::lock_guard lock(lease_links_mutex_);
    lease_links_.emplace(lease, Link{UniqueFd(wake), {}});
  }
  // Once a frame has not gone out whole, none may follow it.
  for (bool heard = true;;) {
    pollfd both[] = {{connection.fd(), POLLIN | POLLRDHUP, 0}, {heard ? wake : -1, POLLIN, 0}};
    if (poll(both, 2, -1) < 0 && errno != EINTR) break;
    if (both[0].revents != 0) break;
    if (both[1].revents == 0) continue;
    std::vector<protocol::WorkerEnded> deaths;
    {
      const std::lock_guard lock(lease_links_mutex_);
      deaths.swap(lease_links_.find(lease)->second.deaths);
      eventfd_t count = 0;
      eventfd_read(wake, &count);
    }
    for (const protocol::WorkerEnded& death : deaths) {
      heard =
          heard &&
          protocol::send_control(connection, death, key, Sender::kServer, sent++, handshake()).ok();
    }
  }
  const std::lock_guard lock(lease_links_mutex_);
  lease_links_.erase(lease);
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

// The link stays until then, so that a client can wait for its GPUs to be free.
void Daemon::wait_until_free(const std::atomic<bool>& returned) {
  std::unique_lock lock(lease_links_mutex_);
  claims_dropped_.wait_for(lock, kFreeDeadline, [&] { return returned || stopping_; });
}

protocol::Listing Daemon::listing() {
  protocol::Listing listing;
  listing.release = protocol::kRelease;
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
  const std::lock_guard lock(lease_links_mutex_);
  for (const auto& [lease, workers] : worker_counts_) listing.workers += workers;
  for (const HeldLease& lease : held) {
    const auto workers = worker_counts_.find(lease.id);
    for (const int device : lease.devices) {
      protocol::ListedGpu& gpu = listing.gpus[static_cast<std::size_t>(device)];
      gpu.holder = lease.holder;
      gpu.held_seconds = static_cast<std::uint64_t>(lease.held.count());
      gpu.workers = workers == worker_counts_.end() ? 0 : workers->second;
    }
  }
  return listing;
}

}  // namespace gpurun::server
