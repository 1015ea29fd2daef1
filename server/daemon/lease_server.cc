// LeaseServer: a link waits in poll() for its client, for deaths of workers, and for its user.
#include "server/daemon/lease_server.h"

#include <errno.h>
#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/hex.h"
#include "base/random.h"
#include "transport/shm/memory.h"
#include "transport/sockets/address.h"

namespace gpurun::server {
namespace {

using protocol::ControlFrame;
using protocol::ControlMessage;
using protocol::Sender;

// Bytes of a client's name for its machine, and of its program's name.
constexpr std::size_t kAskerBytesMax = 64;

// What a client may send behind a hello without waiting for an answer: a token's proof and a
// request.
constexpr std::size_t kSaidWithHelloBytesMax =
    2 * (protocol::kControlHeaderBytes + limits::kHelloBytesMax + sizeof(protocol::Tag));

// Refuses a client that may still be sending. A close with unread bytes would discard the refusal
// (TCP then resets the connection). So this reads on until the client has closed, within bounds.
// The connection counts as unproved meanwhile, and may be shut down for others.
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

// Our end of a link. Empty when clients cannot connect to it.
std::string reached_at(const transport::Connection& link) {
  const Result<transport::sockets::SocketAddress> here =
      transport::sockets::local_address(link.fd());
  return here.ok() ? here->to_string() : std::string();
}

// The entry of a lease in listings. It includes claims of its client.
protocol::ListedGpu about_holder(const transport::Connection& link,
                                 const protocol::LeaseRequest& request) {
  protocol::ListedGpu about;
  const Result<transport::sockets::SocketAddress> there =
      transport::sockets::peer_address(link.fd());
  about.holder = there.ok() ? there->to_string() : link.description();
  about.host = request.host.substr(0, kAskerBytesMax);
  about.program = request.program.substr(0, kAskerBytesMax);
  about.pid = request.pid;
  about.since = seconds_now();
  about.encrypted = link.capabilities().encrypted;
  return about;
}

}  // namespace

void refuse(transport::Connection& connection, const std::string& reason, Deadline deadline,
            bool for_good) {
  static_cast<void>(
      protocol::send_control(connection, protocol::Refused{reason, for_good}, deadline));
}

void LeaseServer::serve(transport::Connection& connection, const protocol::Hello& hello,
                        HalfOpen& half_open, const Exporter& exporter, Deadline deadline) {
  const std::string& peer = connection.description();
  const Status version = protocol::check_version(hello.version, "client");
  if (!version.ok()) {
    spdlog::warn("{}: {}", peer, version.message());
    return refuse_and_hear_out(connection, version.message(), handshake(), deadline);
  }
  const Result<Asked> asked = parts_.authenticator.identify(connection, hello, exporter, deadline);
  const Code code = asked.status().code();
  if (code == Code::kRefused || code == Code::kUnavailable) {
    const std::string& why = asked.status().message();
    spdlog::warn("{}: {}", peer, why);
    parts_.audit.write_refusal("link.refused", {{"from", peer}, {"reason", why}});
    return refuse(connection, why, handshake(), code == Code::kRefused);
  }
  if (!asked.ok()) return spdlog::info("{}: {}", peer, asked.status().to_string());
  half_open.proved();
  const Result<ControlMessage> message = protocol::decode(asked->request);
  if (!message.ok()) return;
  if (const auto* request = std::get_if<protocol::LeaseRequest>(&*message)) {
    hold_lease(connection, *request, *asked, hello.version.release);
  } else if (std::holds_alternative<protocol::ListRequest>(*message)) {
    static_cast<void>(
        protocol::send_control(connection, listing(), asked->key, Sender::kServer, 0, handshake()));
  }
}

void LeaseServer::hold_lease(transport::Connection& connection,
                             const protocol::LeaseRequest& request, const Asked& asked,
                             const std::string& release) {
  const protocol::Key& key = asked.key;
  const User& user = asked.user;
  const std::string& peer = connection.description();
  const Result<protocol::Nonce> challenge = random_array<protocol::Nonce>();
  const Result<protocol::Id> id = random_array<protocol::Id>();
  const Result<protocol::Id> ticket = random_array<protocol::Id>();
  if (!challenge.ok() || !id.ok() || !ticket.ok()) return;
  std::uint64_t sent = 0;
  const auto say = [&](const ControlMessage& words) {
    return protocol::send_control(connection, words, key, Sender::kServer, sent++, handshake());
  };
  const auto no_lease = [&](const Status& why) {
    spdlog::info("{}: no lease for {}: {}", peer, user.described(), why.message());
    parts_.audit.write_refusal(
        "lease.refused",
        {{"user", user.name}, {"token", user.token}, {"from", peer}, {"reason", why.message()}});
    const bool for_good = why.code() == Code::kInvalidArgument;  // The request itself is wrong.
    static_cast<void>(say(protocol::Refused{why.message(), for_good}));
  };
  LeaseWaitBudget budget = parts_.admission.budget(request);
  const Result<std::unique_ptr<UserAdmission>> admission =
      parts_.admission.enter(connection, request, user, budget);
  if (!admission.ok()) return no_lease(admission.status());
  // From here on a revocation of its token is reported, so the token must be valid until here.
  if (const Status valid = parts_.authenticator.check_still_valid(user); !valid.ok())
    return no_lease(valid);
  Result<std::shared_ptr<Claim>> claim =
      parts_.admission.wait_for_devices(connection, request, user, key, **admission, budget, sent);
  budget.watch.reset();
  if (!claim.ok()) return no_lease(claim.status());
  const auto returned = (*claim)->returned();
  std::string gpus;
  for (const int device : (*claim)->devices()) {
    gpus += (gpus.empty() ? "" : ",") + std::to_string(device);
  }
  const protocol::Grant grant{
      *id,
      *ticket,
      *challenge,
      request.devices,
      models_of((*claim)->devices()),
      all_emulated((*claim)->devices()),
      parts_.options.local != nullptr ? parts_.options.local->address() : "",
      reached_at(connection)};
  parts_.links.add(*id, {connection.fd(), admission->get(), about_holder(connection, request),
                         *claim, returned});
  LeaseBegun begun{*id, *claim, user};
  const WipedKey lease_key = protocol::lease_key(key, *id);
  parts_.book.add({*id, *ticket, *challenge, protocol::ticket_key(lease_key, *ticket),
                   *std::move(claim), peer, user});
  parts_.events.post(std::move(begun));
  const std::string lease = hex_of(bytes_of(*id));
  spdlog::info("{}: lease of {} GPUs for {} (gpurun {})", peer, request.devices, user.described(),
               release);
  parts_.audit.write("lease.granted", {{"user", user.name},
                                       {"token", user.token},
                                       {"from", peer},
                                       {"lease", lease},
                                       {"gpus", gpus},
                                       {"release", release}});
  if (say(grant).ok()) tell_deaths(connection, *id, asked, **admission, sent);
  parts_.links.end(*id);
  parts_.closer.close(parts_.book.remove(*id));
  parts_.events.post(LeaseEnded{*id});
  // Keeps the link open until then, so that a client that waits for its end finds the GPUs free.
  parts_.links.wait_until_free(*returned);
  spdlog::info("{}: lease of {} ended", peer, user.described());
  parts_.audit.write("lease.ended", {{"user", user.name},
                                     {"token", user.token},
                                     {"from", peer},
                                     {"lease", lease},
                                     {"reason", (*admission)->why_ended()}});
}

// Returns when the peer sends anything or is gone, or when its user's token is revoked, which ends
// its lease. end_all()'s shut_down() has the same effect. Keep-alive finds a client's machine that
// is gone. Bytes behind the request count as sent, too.
void LeaseServer::tell_deaths(transport::Connection& connection, const protocol::Id& lease,
                              const Asked& asked, UserAdmission& admission, std::uint64_t sent) {
  if (connection.holds_received()) return;
  const auto say = [&](const ControlMessage& words) {
    return protocol::send_control(connection, words, asked.key, Sender::kServer, sent++,
                                  handshake());
  };
  const int wake = parts_.links.wake_fd(lease);
  if (wake < 0) spdlog::warn("a client gets no notice of workers that end: no descriptor is free");
  // After a frame that has not gone out whole, no other may follow.
  for (bool heard = true;;) {
    pollfd all[] = {{connection.fd(), POLLIN | POLLRDHUP, 0},
                    {heard ? wake : -1, POLLIN, 0},
                    {admission.fd(), POLLIN, 0}};
    if (poll(all, 3, -1) < 0 && errno != EINTR) break;
    if (all[0].revents != 0) break;
    if (all[2].revents != 0) {
      if (heard) static_cast<void>(say(protocol::Refused{admission.why_ended()}));
      break;
    }
    if (all[1].revents == 0) continue;
    for (const protocol::WorkerEnded& death : parts_.links.take_deaths(lease))
      heard = heard && say(death).ok();
  }
}

// Each name once, in the order of the devices.
std::vector<std::string> LeaseServer::models_of(const std::vector<int>& devices) const {
  std::vector<std::string> models;
  for (const int device : devices) {
    const auto index = static_cast<std::size_t>(device);
    if (index >= parts_.options.device_facts.size()) continue;
    const std::string& name = parts_.options.device_facts[index].name;
    if (std::find(models.begin(), models.end(), name) == models.end()) models.push_back(name);
  }
  return models;
}

bool LeaseServer::all_emulated(const std::vector<int>& devices) const {
  return std::all_of(devices.begin(), devices.end(), [this](int device) {
    const auto index = static_cast<std::size_t>(device);
    return index < parts_.options.device_facts.size() &&
           parts_.options.device_facts[index].emulated;
  });
}

protocol::Listing LeaseServer::listing() const {
  protocol::Listing listing;
  listing.release = protocol::kRelease;
  listing.now = seconds_now();
  listing.confinement = parts_.options.confinement;
  listing.waiting = static_cast<std::uint32_t>(parts_.queue.waiting());
  listing.gpus.resize(parts_.options.devices);
  for (std::size_t i = 0; i < parts_.options.device_facts.size() && i < listing.gpus.size(); ++i) {
    protocol::ListedGpu& gpu = listing.gpus[i];
    gpu.name = parts_.options.device_facts[i].name;
    gpu.memory_bytes = parts_.options.device_facts[i].memory_bytes;
    if (parts_.options.ledgers == nullptr) continue;
    gpu.used_bytes = parts_.options.ledgers->used_bytes(static_cast<int>(i), gpu.memory_bytes);
  }
  listing.gathering = static_cast<std::uint32_t>(parts_.book.gathering());
  listing.half_open = static_cast<std::uint32_t>(parts_.acceptor.half_open());
  listing.spare_workers = static_cast<std::uint32_t>(parts_.workers.spare_count());
  list_leases(&listing);
  return listing;
}

void LeaseServer::list_leases(protocol::Listing* listing) const {
  const std::vector<HeldLease> held = parts_.book.held();
  listing->leases = static_cast<std::uint32_t>(held.size());
  std::vector<protocol::ListedGpu> entries;
  listing->workers = parts_.links.list(held, &entries);
  std::uint32_t number = 0;
  for (const HeldLease& lease : held) {
    protocol::ListedGpu& about = entries[number];
    about.user = lease.user;
    about.held_seconds = static_cast<std::uint64_t>(lease.held.count());
    about.lease = ++number;
    for (const int device : lease.devices) {
      protocol::ListedGpu& gpu = listing->gpus[static_cast<std::size_t>(device)];
      about.name = gpu.name;
      about.memory_bytes = gpu.memory_bytes;
      about.used_bytes = gpu.used_bytes;
      gpu = about;
    }
  }
}

}  // namespace gpurun::server
