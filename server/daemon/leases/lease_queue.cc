// LeaseQueue: serve() has the only rule. The first in the queue gets its GPUs when they are free.
#include "server/daemon/leases/lease_queue.h"

#include <errno.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <string>
#include <utility>

#include "protocol/limits.h"

namespace gpurun::server {

struct Claim::State {
  std::mutex mutex;
  std::set<int> free;
  std::deque<Claim*> waiting;  // Each removes itself when it is destroyed.
  std::vector<int> last{0};    // Of the last grant. The first one will probably be for one GPU.
  std::size_t ending = 0;      // GPUs of ending claims.
  std::set<const Watch*> watching;

  void serve() {
    while (!waiting.empty() && waiting.front()->wanted_ <= free.size()) {
      Claim* claim = waiting.front();
      waiting.pop_front();
      for (unsigned i = 0; i < claim->wanted_; ++i) {
        claim->devices_.push_back(*free.begin());
        free.erase(free.begin());
      }
      last = claim->devices_;
      // Cannot fail: the counter is 0, and the descriptor is the claim's own.
      eventfd_write(claim->granted_.get(), 1);
    }
  }
  // Number of GPUs that `wanted` lack, behind all waiting requests.
  std::size_t lacking(std::size_t wanted) const {
    for (const Claim* claim : waiting) wanted += claim->wanted_;
    const std::size_t coming = free.size() + ending;
    return wanted > coming ? wanted - coming : 0;
  }
  void tell_watching() const {
    for (const Watch* watch : watching) eventfd_write(watch->fd(), 1);
  }
  // Success when one more request may wait.
  Status check_room(const std::string& user) const {
    if (waiting.size() + watching.size() >= limits::kWaitingMax) {
      return Status(Code::kResourceExhausted, "too many requests wait for GPUs; try again later");
    }
    if (user.empty()) return {};
    const auto is_theirs = [&user](const auto* one) { return one->user_ == user; };
    const auto theirs = std::count_if(waiting.begin(), waiting.end(), is_theirs) +
                        std::count_if(watching.begin(), watching.end(), is_theirs);
    if (theirs < static_cast<std::ptrdiff_t>(limits::kWaitingOfUserMax)) return {};
    return Status(Code::kResourceExhausted,
                  "user " + user + " has " + std::to_string(theirs) +
                      " requests that wait for GPUs, which is a user's share of this server's "
                      "queue; try again when one of them has ended");
  }
};

Claim::Claim(std::shared_ptr<State> state, unsigned wanted, std::string user, UniqueFd granted)
    : state_(std::move(state)),
      wanted_(wanted),
      user_(std::move(user)),
      granted_(std::move(granted)) {}

Claim::~Claim() {
  const std::lock_guard lock(state_->mutex);
  const bool had_something = std::erase(state_->waiting, this) > 0 || !devices_.empty();
  state_->free.insert(devices_.begin(), devices_.end());
  if (ending_) state_->ending -= devices_.size();
  state_->serve();
  *returned_ = true;
  if (had_something) state_->tell_watching();
}

bool Claim::granted() const {
  const std::lock_guard lock(state_->mutex);
  return !devices_.empty();
}

std::vector<int> Claim::devices() const {
  const std::lock_guard lock(state_->mutex);
  return devices_;
}

unsigned Claim::ahead() const {
  const std::lock_guard lock(state_->mutex);
  if (!devices_.empty()) return 0;
  const auto place = std::find(state_->waiting.begin(), state_->waiting.end(), this);
  return static_cast<unsigned>(place - state_->waiting.begin());
}

void Claim::end() {
  const std::lock_guard lock(state_->mutex);
  if (std::exchange(ending_, true)) return;
  state_->ending += devices_.size();
  state_->tell_watching();
}

Watch::Watch(std::shared_ptr<Claim::State> state, std::string user, UniqueFd changed)
    : state_(std::move(state)), user_(std::move(user)), changed_(std::move(changed)) {}

Watch::~Watch() {
  const std::lock_guard lock(state_->mutex);
  state_->watching.erase(this);
}

void Watch::forget() noexcept {
  eventfd_t count = 0;
  eventfd_read(changed_.get(), &count);
}

LeaseQueue::LeaseQueue(unsigned device_count)
    : device_count_(device_count), state_(std::make_shared<Claim::State>()) {
  for (unsigned device = 0; device < device_count; ++device) {
    state_->free.insert(static_cast<int>(device));
  }
}

Result<std::shared_ptr<Claim>> LeaseQueue::claim(unsigned devices, const std::string& user) {
  return claim(devices, user, false);
}

Result<std::shared_ptr<Claim>> LeaseQueue::claim_soon(unsigned devices, const std::string& user) {
  return claim(devices, user, true);
}

Result<std::shared_ptr<Claim>> LeaseQueue::claim(unsigned devices, const std::string& user,
                                                 bool only_soon) {
  if (devices == 0 || devices > device_count_) {
    return Status(
        Code::kInvalidArgument,
        std::to_string(devices) + " GPUs wanted; this server has " + std::to_string(device_count_));
  }
  UniqueFd event(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!event.valid()) return Status::from_errno(errno, "eventfd");
  std::shared_ptr<Claim> claim(new Claim(state_, devices, user, std::move(event)));
  const std::lock_guard lock(state_->mutex);
  if (only_soon && state_->lacking(devices) > 0) return std::shared_ptr<Claim>();
  GPURUN_RETURN_IF_ERROR(state_->check_room(user));
  state_->waiting.push_back(claim.get());
  state_->serve();
  return claim;
}

std::size_t LeaseQueue::lacking(unsigned devices) const {
  const std::lock_guard lock(state_->mutex);
  return state_->lacking(devices);
}

Result<std::unique_ptr<Watch>> LeaseQueue::watch(const std::string& user) {
  UniqueFd event(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!event.valid()) return Status::from_errno(errno, "eventfd");
  std::unique_ptr<Watch> watch(new Watch(state_, user, std::move(event)));
  const std::lock_guard lock(state_->mutex);
  GPURUN_RETURN_IF_ERROR(state_->check_room(user));
  state_->watching.insert(watch.get());
  return watch;
}

std::vector<int> LeaseQueue::expected() const {
  const std::lock_guard lock(state_->mutex);
  const std::size_t count = state_->last.size();
  if (state_->free.size() < count) return state_->last;
  const auto first = state_->free.begin();
  return {first, std::next(first, static_cast<std::ptrdiff_t>(count))};
}

std::size_t LeaseQueue::waiting() const {
  const std::lock_guard lock(state_->mutex);
  return state_->waiting.size() + state_->watching.size();
}

}  // namespace gpurun::server
