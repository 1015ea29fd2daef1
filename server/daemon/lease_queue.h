// LeaseQueue: which GPUs are whose. Whole GPUs, exclusively, first come first served: a request for
// many is not overtaken by later ones for few.
//
// Any thread.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace gpurun::server {

class LeaseQueue;

// A place in the queue, later the GPUs themselves; they come free when the last owner lets go: the
// lease and every worker that still runs on them.
class Claim {
 public:
  ~Claim();
  Claim(const Claim&) = delete;
  Claim& operator=(const Claim&) = delete;

  // Readable once granted.
  int fd() const noexcept { return granted_.get(); }
  bool granted() const;
  // The driver's ordinals; empty until granted, then never changed.
  std::vector<int> devices() const;
  // Becomes true when its GPUs are free for others; outlives the claim. (A weak pointer to the
  // claim expires before that.)
  std::shared_ptr<const std::atomic<bool>> returned() const { return returned_; }
  // Requests that come before this one; 0 once granted.
  unsigned ahead() const;
  // Its lease has ended, and what still runs on its GPUs is being ended: they come free soon. Once
  // or more.
  void end();

 private:
  friend class LeaseQueue;
  friend class Watch;
  struct State;
  Claim(std::shared_ptr<State> state, unsigned wanted, std::string user, UniqueFd granted);

  const std::shared_ptr<State> state_;
  const unsigned wanted_;
  const std::string user_;
  const UniqueFd granted_;
  std::vector<int> devices_;  // Under the state's mutex, as the next.
  bool ending_ = false;
  const std::shared_ptr<std::atomic<bool>> returned_ = std::make_shared<std::atomic<bool>>(false);
};

// For a request without a place in the queue that may have one later.
class Watch {
 public:
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  // Readable once GPUs have come free, or are to do so soon, since forget().
  int fd() const noexcept { return changed_.get(); }
  void forget() noexcept;

 private:
  friend class LeaseQueue;
  friend struct Claim::State;
  Watch(std::shared_ptr<Claim::State> state, std::string user, UniqueFd changed);
  const std::shared_ptr<Claim::State> state_;
  const std::string user_;
  const UniqueFd changed_;
};

class LeaseQueue {
 public:
  explicit LeaseQueue(unsigned device_count);

  // Granted at once when the GPUs are free and nobody waits. `user`: the name of a user with a
  // token, who has a share of the queue (limits::kWaitingOfUserMax); empty: the operator, who has
  // all of it. kRefused: the server has not so many GPUs, or `devices` is 0. kResourceExhausted: no
  // descriptor, or the queue or the user's share is full.
  Result<std::shared_ptr<Claim>> claim(unsigned devices, const std::string& user = {});
  // The same for a request that waits for no lease in force: empty where those GPUs that are free,
  // or come so soon, are not enough. It has no place in the queue then, and is in nobody's way.
  Result<std::shared_ptr<Claim>> claim_soon(unsigned devices, const std::string& user = {});
  // How many GPUs too few those are for that.
  std::size_t lacking(unsigned devices) const;
  // kResourceExhausted: no descriptor, or the queue or the user's share is full.
  Result<std::unique_ptr<Watch>> watch(const std::string& user = {});
  // The GPUs that the next request will get, if it is for as many as the last one that was granted
  // and comes now: where so many are not free, those of that one, which may come back.
  std::vector<int> expected() const;
  // Requests that wait: in the queue, or with a watch.
  std::size_t waiting() const;

 private:
  Result<std::shared_ptr<Claim>> claim(unsigned devices, const std::string& user, bool only_soon);

  const unsigned device_count_;
  const std::shared_ptr<Claim::State> state_;
};

}  // namespace gpurun::server
