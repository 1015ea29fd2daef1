// The queue's one rule stands in serve(): the first in the queue gets its GPUs when they are free.
#include "server/daemon/lease_queue.h"

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
  std::deque<Claim*> waiting;  // Each takes itself out when it goes.
  std::vector<int> last{0};    // Granted; the first one will probably be for one GPU.
  std::size_t ending = 0;      // GPUs of claims that end.

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
};

Claim::Claim(std::shared_ptr<State> state, unsigned wanted, UniqueFd granted)
    : state_(std::move(state)), wanted_(wanted), granted_(std::move(granted)) {}

Claim::~Claim() {
  const std::lock_guard lock(state_->mutex);
  std::erase(state_->waiting, this);
  state_->free.insert(devices_.begin(), devices_.end());
  if (ending_) state_->ending -= devices_.size();
  state_->serve();
  *returned_ = true;
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
  if (!std::exchange(ending_, true)) state_->ending += devices_.size();
}

bool Claim::comes_soon() const {
  const std::lock_guard lock(state_->mutex);
  std::size_t wanted = 0;
  for (const Claim* waiting : state_->waiting) {
    wanted += waiting->wanted_;
    if (waiting == this) return wanted <= state_->free.size() + state_->ending;
  }
  return true;
}

LeaseQueue::LeaseQueue(unsigned device_count)
    : device_count_(device_count), state_(std::make_shared<Claim::State>()) {
  for (unsigned device = 0; device < device_count; ++device) {
    state_->free.insert(static_cast<int>(device));
  }
}

Result<std::shared_ptr<Claim>> LeaseQueue::claim(unsigned devices) {
  if (devices == 0 || devices > device_count_) {
    return Status(Code::kRefused, std::to_string(devices) + " GPUs wanted; this server has " +
                                      std::to_string(device_count_));
  }
  UniqueFd event(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!event.valid()) return Status::from_errno(errno, "eventfd");
  std::shared_ptr<Claim> claim(new Claim(state_, devices, std::move(event)));
  const std::lock_guard lock(state_->mutex);
  if (state_->waiting.size() >= limits::kWaitingMax) {
    return Status(Code::kResourceExhausted, "too many requests wait for GPUs");
  }
  state_->waiting.push_back(claim.get());
  state_->serve();
  return claim;
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
  return state_->waiting.size();
}

}  // namespace gpurun::server
