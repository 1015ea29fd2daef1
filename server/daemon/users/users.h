// UserRegistry: the present users, the bounds of each user, and a way to end a user's leases from
// another thread.
//
// Any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "protocol/auth/token_file.h"
#include "server/handover/user.h"

namespace gpurun::server {

// What one user may have at a time, over all tokens. An unset value has no bound. Bounds apply to
// users with tokens, not to the operator.
struct UserLimits {
  std::optional<std::uint64_t> leases;    // Waiting requests count, too.
  std::optional<std::uint64_t> gpus;      // In these leases.
  std::optional<std::uint64_t> sessions;  // Attached processes.

  friend bool operator==(const UserLimits&, const UserLimits&) = default;
};

struct UserLimitsTable {
  UserLimits every;
  std::map<std::string, UserLimits> by_name;  // Overrides `every`.

  UserLimits of(const std::string& name) const;
};

// What may let in a refused request.
enum class Room {
  kNone,
  kIfLeasesEnd,  // The end of some active leases of the same user.
  kSoon,         // The return of ended leases.
};

class UserRegistry;

// One request for a lease, from its arrival until its lease has ended. The book must outlive it.
class UserAdmission {
 public:
  ~UserAdmission();
  UserAdmission(const UserAdmission&) = delete;
  UserAdmission& operator=(const UserAdmission&) = delete;
  // Readable once it must end.
  int fd() const noexcept { return told_.get(); }
  // Why it must end. Empty: it need not.
  std::string why_ended() const;
  // Its lease has ended. It gets no more notifications, and counts until its GPUs have
  // `returned`. Call once or more.
  void leave(std::shared_ptr<const std::atomic<bool>> returned);

 private:
  friend class UserRegistry;
  UserAdmission(UserRegistry& book, const User& user, unsigned gpus, UniqueFd told)
      : book_(book), user_(user), gpus_(gpus), told_(std::move(told)) {}
  void tell(const std::string& why);  // Under the book's mutex. Only the first call counts.
  UserRegistry& book_;
  const User user_;
  const unsigned gpus_;
  const UniqueFd told_;
  std::string why_;  // Under the book's mutex.
};

class UserRegistry {
 public:
  explicit UserRegistry(UserLimitsTable limits) : limits_(std::move(limits)) {}

  // kRefused: the user has reached a bound. The message names it and its setting.
  Result<std::unique_ptr<UserAdmission>> enter(const User& user, unsigned gpus);
  // For a refused request.
  Room room(const User& user, unsigned gpus) const;
  // Success when a user with `running` processes may have another one. Otherwise the message says
  // why.
  Status admit_session(const User& user, std::size_t running) const;
  // Ends all admissions of that token.
  void end(const std::string& token, const std::string& why);
  // Ends all admissions, the operator's too. From now on enter() refuses.
  void close(const std::string& why);
  // Applies to later requests and sessions.
  void set_limits(UserLimitsTable limits);

 private:
  friend class UserAdmission;

  // GPUs of an ended lease, on which processes may still run.
  struct Leaving {
    User user;
    unsigned gpus;
    std::shared_ptr<const std::atomic<bool>> returned;
  };
  struct Held {
    std::uint64_t leases = 0;
    std::uint64_t gpus = 0;
  };
  Held admitted(const User& user) const;  // Under mutex_, as the next.
  Held leaving(const User& user) const;

  mutable std::mutex mutex_;
  UserLimitsTable limits_;
  std::string why_closed_;  // Empty: it is open.
  std::set<UserAdmission*> admissions_;
  std::vector<Leaving> leaving_;
};

}  // namespace gpurun::server
