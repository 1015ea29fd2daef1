// LeaseLinks: one table of links and one of counts, behind one mutex.
#include "server/daemon/leases/lease_links.h"

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>

#include <chrono>
#include <utility>

namespace gpurun::server {
namespace {

// For the workers of a lease to end after they were killed.
constexpr std::chrono::seconds kFreeDeadline{10};
// Deaths of one lease's workers that its client has not taken yet. Later ones are only logged.
constexpr std::size_t kUntoldDeathsMax = 64;

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

void LeaseLinks::session_started(const protocol::Id& lease, bool sharing) {
  const std::lock_guard lock(mutex_);
  WorkerCount& count = worker_counts_[lease];
  ++count.all;
  if (sharing) ++count.sharing;
}

void LeaseLinks::session_ended(const protocol::Id& lease, bool sharing) {
  const std::lock_guard lock(mutex_);
  const auto count = worker_counts_.find(lease);
  if (count == worker_counts_.end()) return;
  if (sharing) --count->second.sharing;
  if (--count->second.all == 0) worker_counts_.erase(count);
}

std::uint32_t LeaseLinks::list(const std::vector<HeldLease>& held,
                               std::vector<protocol::ListedGpu>* entries) {
  std::uint32_t all = 0;
  const std::lock_guard lock(mutex_);
  for (const auto& [lease, workers] : worker_counts_) all += workers.all;
  for (const HeldLease& lease : held) {
    protocol::ListedGpu& entry = entries->emplace_back();
    // A lease that is ending has no link any more.
    if (const auto link = links_.find(lease.id); link != links_.end()) {
      entry = link->second.holder.about;
    } else {
      entry.holder = lease.holder;
    }
    if (const auto workers = worker_counts_.find(lease.id); workers != worker_counts_.end()) {
      entry.workers = workers->second.all;
      entry.sharing = workers->second.sharing;
    }
  }
  return all;
}

}  // namespace gpurun::server
