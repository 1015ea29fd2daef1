// LeaseBook: gathers a session's connections in any order.
#include "server/daemon/leases/lease_book.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace gpurun::server {
namespace {

Status over() {
  return Status(Code::kRefused, "the lease is over, or this server never granted it");
}

}  // namespace

void LeaseBook::add(Lease lease) {
  const std::lock_guard lock(mutex_);
  const protocol::Id id = lease.id;
  entries_.emplace(id, Entry{std::move(lease), {}, {}, {}, 0, 0});
}

LeaseBook::Connections LeaseBook::remove(const protocol::Id& id) {
  // Destroyed after the lock is released, because a claim has a lock of its own.
  std::map<protocol::Id, Entry>::node_type ended;
  Connections dropped;
  const std::lock_guard lock(mutex_);
  ended = entries_.extract(id);
  if (ended.empty()) return dropped;
  Entry& entry = ended.mapped();
  for (auto& [session, gathering] : entry.gathering) drop(entry, gathering, &dropped);
  return dropped;
}

void LeaseBook::close(const std::string& token, const std::string& why) {
  const std::lock_guard lock(mutex_);
  for (auto& [id, entry] : entries_) {
    if (!entry.lease.user.is_operator() && entry.lease.user.token == token) entry.why_closed = why;
  }
}

bool LeaseBook::has(const protocol::Id& id) const {
  const std::lock_guard lock(mutex_);
  return entries_.count(id) != 0;
}

std::vector<HeldLease> LeaseBook::held() const {
  const auto now = std::chrono::steady_clock::now();
  const std::lock_guard lock(mutex_);
  std::vector<HeldLease> all;
  for (const auto& [id, entry] : entries_) {
    all.push_back({id, entry.lease.holder, entry.lease.user.name,
                   std::chrono::duration_cast<std::chrono::seconds>(now - entry.lease.since),
                   entry.lease.claim->devices()});
  }
  return all;
}

std::size_t LeaseBook::devices_of(const User& user) const {
  const std::lock_guard lock(mutex_);
  std::size_t count = 0;
  for (const auto& [id, entry] : entries_) {
    if (entry.lease.user.is_same(user)) count += entry.lease.claim->devices().size();
  }
  return count;
}

std::size_t LeaseBook::gathering() const {
  const std::lock_guard lock(mutex_);
  std::size_t count = 0;
  for (const auto& [id, entry] : entries_) count += entry.gathering.size();
  return count;
}

Result<protocol::Key> LeaseBook::attach_key(const protocol::Attach& attach) const {
  const std::lock_guard lock(mutex_);
  const auto entry = entries_.find(attach.lease);
  if (entry == entries_.end() || entry->second.lease.ticket != attach.ticket) return over();
  const Lease& lease = entry->second.lease;
  return protocol::link_key(bytes_of(lease.ticket_key.get()), protocol::Link::kAttach,
                            lease.challenge, attach.nonce, attach.session);
}

Result<protocol::Key> LeaseBook::tls_key(const protocol::SessionIdentity& identity) const {
  const std::lock_guard lock(mutex_);
  const auto entry = entries_.find(identity.lease);
  if (entry == entries_.end() || entry->second.lease.ticket != identity.ticket) return over();
  const Lease& lease = entry->second.lease;
  return protocol::tls_session_key(lease.ticket_key, lease.challenge, identity.session);
}

Status LeaseBook::check_room(const Entry& entry, bool is_new_session) const {
  if (is_new_session &&
      (entry.sessions.size() >= sessions_max_ || entry.gathering.size() >= limits::kGatheringMax)) {
    return Status(Code::kRefused, "too many sessions on this lease");
  }
  if (entry.gathered >= limits::kGatheredOfLeaseMax) {
    return Status(Code::kRefused, "too many sessions on this lease wait for their connections");
  }
  std::size_t of_user = 0;
  for (const auto& [id, other] : entries_) {
    if (other.lease.user.is_same(entry.lease.user)) of_user += other.gathered + other.starting;
  }
  if (of_user < limits::kGatheredOfUserMax) return {};
  return Status(Code::kRefused,
                "too many sessions of " + entry.lease.user.name + " wait for their connections");
}

void LeaseBook::drop(Entry& entry, Gathering& gathering, Connections* dropped) {
  entry.gathered -= gathering.arrived;
  std::move(gathering.connections.begin(), gathering.connections.end(),
            std::back_inserter(*dropped));
  std::erase(*dropped, nullptr);
}

Result<std::optional<Arrival>> LeaseBook::arrive(const protocol::Attach& attach,
                                                 const protocol::Key& key,
                                                 std::unique_ptr<transport::Connection>& connection,
                                                 bool encrypted) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(attach.lease);
  if (found == entries_.end()) return over();
  Entry& entry = found->second;
  if (!entry.why_closed.empty()) return Status(Code::kRefused, entry.why_closed);
  if (entry.sessions.count(attach.session) != 0) {
    return Status(Code::kRefused, "this session has attached before");
  }
  const bool is_new_session = entry.gathering.count(attach.session) == 0;
  GPURUN_RETURN_IF_ERROR(check_room(entry, is_new_session));
  const auto place = entry.gathering.try_emplace(attach.session).first;
  Gathering& gathering = place->second;
  if (is_new_session) {
    gathering.deadline = Deadline::in(gather_deadline_);
    gathering.nonce = attach.nonce;
    gathering.rows = attach.rows;
    gathering.features = attach.version.features;
    gathering.encrypted = encrypted;
    gathering.connections.resize(attach.count);
  }
  if (gathering.nonce != attach.nonce || gathering.rows != attach.rows ||
      gathering.features != attach.version.features || gathering.encrypted != encrypted ||
      gathering.connections.size() != attach.count ||
      gathering.connections[attach.index] != nullptr) {
    return Status(Code::kRefused, "this connection of the session has come before");
  }
  gathering.connections[attach.index] = std::move(connection);
  ++entry.gathered;
  if (++gathering.arrived < gathering.connections.size()) return std::optional<Arrival>();
  Arrival arrival;
  arrival.lease = attach.lease;
  arrival.claim = entry.lease.claim;
  arrival.order.session = attach.session;
  arrival.order.user = entry.lease.user;
  arrival.order.key = key;
  arrival.order.rows = attach.rows;
  arrival.order.features = attach.version.features;
  arrival.order.encrypted = encrypted;
  arrival.order.lease = attach.lease;
  arrival.order.ticket = attach.ticket;
  arrival.order.devices = entry.lease.claim->devices();
  entry.gathered -= gathering.arrived;
  entry.starting += gathering.arrived;
  arrival.order.connections = std::move(gathering.connections);
  entry.gathering.erase(place);
  entry.sessions.emplace(attach.session, Complete{attach.count, encrypted});
  return std::optional<Arrival>(std::move(arrival));
}

void LeaseBook::settled(const protocol::Id& lease, std::size_t connections) {
  const std::lock_guard lock(mutex_);
  const auto entry = entries_.find(lease);
  if (entry != entries_.end()) entry->second.starting -= connections;
}

Result<bool> LeaseBook::join(const protocol::Attach& attach, bool encrypted) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(attach.lease);
  if (found == entries_.end()) return over();
  Entry& entry = found->second;
  const auto session = entry.sessions.find(attach.session);
  if (session == entry.sessions.end()) return false;
  if (!entry.why_closed.empty()) return Status(Code::kRefused, entry.why_closed);
  Complete& complete = session->second;
  if (attach.index < complete.connections || attach.count != attach.index + 1 ||
      encrypted != complete.encrypted) {
    return Status(Code::kRefused, "this session has attached before");
  }
  complete.connections = attach.count;
  return true;
}

LeaseBook::Connections LeaseBook::drop_late() {
  Connections dropped;
  const std::lock_guard lock(mutex_);
  for (auto& [id, entry] : entries_) {
    for (auto next = entry.gathering.begin(); next != entry.gathering.end();) {
      const auto session = next++;
      if (!session->second.deadline.passed()) continue;
      drop(entry, session->second, &dropped);
      entry.gathering.erase(session);
    }
  }
  return dropped;
}

}  // namespace gpurun::server
