// LeaseQueue: decides which lease gets which GPUs. It gives out whole GPUs, exclusively, first come
// first served: later requests for few GPUs do not overtake an earlier one for many.
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

// A place in the queue, and later the GPUs themselves. They become free when the last owner
// releases the claim. Owners are the lease, and every worker that still runs on the GPUs.
class Claim {
 public:
  ~Claim();
  Claim(const Claim&) = delete;
  Claim& operator=(const Claim&) = delete;

  // Readable once granted.
  int fd() const noexcept { return granted_.get(); }
  bool granted() const;
  // The driver's ordinals. Empty until granted, and then constant.
  std::vector<int> devices() const;
  // Becomes true when its GPUs are free for others, and outlives the claim. (A weak pointer to the
  // claim expires before that.)
  std::shared_ptr<const std::atomic<bool>> returned() const { return returned_; }
  // Number of requests before this one. 0 once granted.
  unsigned ahead() const;
  // Its lease has ended, and everything that runs on its GPUs is being ended. So they will be free
  // soon. Call once or more.
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

// A watch for a request without a place in the queue that may get one later.
class Watch {
 public:
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  // Readable once GPUs have become free, or will be soon, since the last forget().
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

  // Grants at once when the GPUs are free and no request waits. `user` is the name of a user with a
  // token, and has a share of the queue (limits::kWaitingOfUserMax). Empty: the operator, without
  // such a bound. kRefused: the server does not have that many GPUs, or `devices` is 0.
  // kResourceExhausted: no descriptor, or the queue or the user's share is full.
  Result<std::shared_ptr<Claim>> claim(unsigned devices, const std::string& user = {});
  // As claim(), for a request that waits for no active lease. Returns null when the GPUs that are
  // free, or will be soon, are not enough. Then the request has no place in the queue and blocks no
  // other.
  Result<std::shared_ptr<Claim>> claim_soon(unsigned devices, const std::string& user = {});
  // How many GPUs are missing for that.
  std::size_t lacking(unsigned devices) const;
  // kResourceExhausted: no descriptor, or the queue or the user's share is full.
  Result<std::unique_ptr<Watch>> watch(const std::string& user = {});
  // The GPUs that the next request will get, if it asks now for as many as the last granted one.
  // When not enough are free, returns the last grant's GPUs, which may come back.
  std::vector<int> expected() const;
  // Number of waiting requests, in the queue or with a watch.
  std::size_t waiting() const;

 private:
  Result<std::shared_ptr<Claim>> claim(unsigned devices, const std::string& user, bool only_soon);

  const unsigned device_count_;
  const std::shared_ptr<Claim::State> state_;
};

}  // namespace gpurun::server
