// LeaseLinks: one table of links and one of counts, behind one mutex.
#include "server/daemon/leases/lease_links.h"

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>

#include <chrono>
#include <set>
#include <utility>

namespace gpurun::server {
namespace {

// For the workers of a lease to end after they were killed.
constexpr std::chrono::seconds kFreeDeadline{10};
// Deaths of one lease's workers that its client has not taken yet. Later ones are only logged.
constexpr std::size_t kUntoldDeathsMax = 64;
// Bytes of the ports in the entry of one lease. Sessions differ in few of them.
constexpr std::size_t kListedPortsMax = 400;
constexpr std::size_t kListedNodesMax = 64;

}  // namespace

void LeaseLinks::Link::end() const {
  holder.admission->leave(holder.returned);
  if (const std::shared_ptr<Claim> held = holder.claim.lock(); held != nullptr) held->end();
}

void LeaseLinks::add(const protocol::Id& lease, Holder holder) {
  const std::lock_guard lock(mutex_);
  links_.emplace(lease,
                 Link{std::move(holder), UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)), {}});
}

void LeaseLinks::end(const protocol::Id& lease) {
  const std::lock_guard lock(mutex_);
  links_.extract(lease).mapped().end();
}

void LeaseLinks::note_ended() {
  const std::lock_guard lock(mutex_);
  std::vector<pollfd> ends;
  for (const auto& [lease, link] : links_) {
    ends.push_back({link.holder.fd, POLLIN | POLLRDHUP, 0});
  }
  if (poll(ends.data(), ends.size(), 0) <= 0) return;
  std::size_t place = 0;
  for (const auto& [lease, link] : links_) {
    if (ends[place++].revents != 0) link.end();
  }
}

int LeaseLinks::wake_fd(const protocol::Id& lease) {
  const std::lock_guard lock(mutex_);
  return links_.find(lease)->second.wake.get();
}

std::vector<protocol::WorkerEnded> LeaseLinks::take_deaths(const protocol::Id& lease) {
  std::vector<protocol::WorkerEnded> deaths;
  const std::lock_guard lock(mutex_);
  Link& link = links_.find(lease)->second;
  deaths.swap(link.deaths);
  eventfd_t count = 0;
  eventfd_read(link.wake.get(), &count);
  return deaths;
}

void LeaseLinks::report_death(const protocol::Id& lease, protocol::WorkerEnded death) {
  const std::lock_guard lock(mutex_);
  const auto link = links_.find(lease);
  if (link == links_.end() || link->second.deaths.size() == kUntoldDeathsMax) return;
  link->second.deaths.push_back(std::move(death));
  eventfd_write(link->second.wake.get(), 1);
}

void LeaseLinks::wait_until_free(const std::atomic<bool>& returned) {
  std::unique_lock lock(mutex_);
  claims_dropped_.wait_for(lock, kFreeDeadline, [&] { return returned || stopping_; });
}

void LeaseLinks::tell_claims_dropped() {
  const std::lock_guard lock(mutex_);
  claims_dropped_.notify_all();
}

void LeaseLinks::session_started(const protocol::Id& lease, const protocol::Id& session,
                                 SessionTransport transport) {
  const std::lock_guard lock(mutex_);
  sessions_[lease][session] = std::move(transport);
}

void LeaseLinks::session_changed(const protocol::Id& lease, const protocol::Id& session,
                                 SessionTransport transport) {
  const std::lock_guard lock(mutex_);
  const auto of_lease = sessions_.find(lease);
  if (of_lease == sessions_.end()) return;
  const auto found = of_lease->second.find(session);
  if (found == of_lease->second.end()) return;
  transport.shares_memory = found->second.shares_memory;
  found->second = std::move(transport);
}

void LeaseLinks::session_ended(const protocol::Id& lease, const protocol::Id& session) {
  const std::lock_guard lock(mutex_);
  const auto of_lease = sessions_.find(lease);
  if (of_lease == sessions_.end()) return;
  of_lease->second.erase(session);
  if (of_lease->second.empty()) sessions_.erase(of_lease);
}

void LeaseLinks::count(const Sessions& sessions, protocol::ListedGpu* entry) {
  std::set<std::string> ports;
  std::set<int> nodes;
  entry->workers = static_cast<std::uint32_t>(sessions.size());
  for (const auto& [session, transport] : sessions) {
    if (transport.shares_memory) ++entry->sharing;
    if (transport.numa_node >= 0) nodes.insert(transport.numa_node);
    if (transport.over_rdma == 0) continue;
    ++entry->over_rdma;
    if (transport.over_rdma < transport.connections) ++entry->over_rdma_and_tcp;
    ports.insert(transport.ports);
  }
  for (const int each : nodes) {
    if (entry->numa_nodes.size() > kListedNodesMax) break;
    entry->numa_nodes += (entry->numa_nodes.empty() ? "" : ",") + std::to_string(each);
  }
  for (const std::string& each : ports) {
    if (entry->rdma_ports.size() + each.size() > kListedPortsMax) break;
    entry->rdma_ports += (entry->rdma_ports.empty() ? "" : ", ") + each;
  }
}

std::uint32_t LeaseLinks::list(const std::vector<HeldLease>& held,
                               std::vector<protocol::ListedGpu>* entries) {
  std::uint32_t all = 0;
  const std::lock_guard lock(mutex_);
  for (const auto& [lease, sessions] : sessions_) {
    all += static_cast<std::uint32_t>(sessions.size());
  }
  for (const HeldLease& lease : held) {
    protocol::ListedGpu& entry = entries->emplace_back();
    // A lease that is ending has no link any more.
    if (const auto link = links_.find(lease.id); link != links_.end()) {
      entry = link->second.holder.about;
    } else {
      entry.holder = lease.holder;
    }
    const auto sessions = sessions_.find(lease.id);
    if (sessions != sessions_.end()) count(sessions->second, &entry);
  }
  return all;
}

}  // namespace gpurun::server
