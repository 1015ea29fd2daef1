// UserBook: who is here, how much each user may have at a time, and how a user's leases are ended
// from elsewhere.
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
#include "protocol/token_file.h"

namespace gpurun::server {

// Whose link, lease or session it is.
struct User {
  std::string name = protocol::kOperator;  // Who knows the server's own secret.
  std::string token;                       // Its id; empty for the operator.

  bool is_operator() const { return token.empty(); }
  // By any token.
  bool is_same(const User& other) const {
    return is_operator() == other.is_operator() && name == other.name;
  }
  // "anna (token 0123456789ab)", "operator".
  std::string described() const;
};

// What one user may have at a time, all tokens together; what is not said has no bound. Bounds are
// for users with tokens, not for the operator.
struct UserLimits {
  std::optional<std::uint64_t> leases;    // Requests that wait count.
  std::optional<std::uint64_t> gpus;      // Of these leases.
  std::optional<std::uint64_t> sessions;  // Processes that are attached.

  friend bool operator==(const UserLimits&, const UserLimits&) = default;
};

struct UserLimitsTable {
  UserLimits every;
  std::map<std::string, UserLimits> by_name;  // What is said here stands over `every`.

  UserLimits of(const std::string& name) const;
};

// What could let in a request that is refused.
enum class Room {
  kNone,
  kIfLeasesEnd,  // Some of the same user's, which are in force.
  kSoon,         // What is on its way back.
};

class UserBook {
 public:
  explicit UserBook(UserLimitsTable limits) : limits_(std::move(limits)) {}

  // One request for a lease, from when it is made to when its lease has ended. Not longer than the
  // book.
  class Stay {
   public:
    ~Stay();
    Stay(const Stay&) = delete;
    Stay& operator=(const Stay&) = delete;
    // Readable once it is to end.
    int fd() const noexcept { return told_.get(); }
    // Why it is to end; empty: it is not.
    std::string why_ended() const;
    // Its lease has ended: it is not told any more, and counts until its GPUs have `returned`. Once
    // or more.
    void leave(std::shared_ptr<const std::atomic<bool>> returned);

   private:
    friend class UserBook;
    Stay(UserBook& book, const User& user, unsigned gpus, UniqueFd told)
        : book_(book), user_(user), gpus_(gpus), told_(std::move(told)) {}
    void tell(const std::string& why);  // Under the book's mutex. The first one counts.
    UserBook& book_;
    const User user_;
    const unsigned gpus_;
    const UniqueFd told_;
    std::string why_;  // Under the book's mutex.
  };

  // kRefused: the user has as much as may be; the sentence says what, and which setting bounds it.
  Result<std::unique_ptr<Stay>> enter(const User& user, unsigned gpus);
  // For a request that is refused.
  Room room(const User& user, unsigned gpus) const;
  // Whether `running` processes of that user's leave room for another; the sentence otherwise.
  Status admit_session(const User& user, std::size_t running) const;
  // All stays by that token are to end.
  void end(const std::string& token, const std::string& why);
  // All stays are to end, the operator's too, and enter() refuses from now on.
  void close(const std::string& why);
  // For what enters, and for sessions, from now on.
  void set_limits(UserLimitsTable limits);

 private:
  // GPUs of a lease that has ended, on which something may still run.
  struct Leaving {
    User user;
    unsigned gpus;
    std::shared_ptr<const std::atomic<bool>> returned;
  };
  struct Held {
    std::uint64_t leases = 0;
    std::uint64_t gpus = 0;
  };
  Held staying(const User& user) const;  // Under the mutex, as the next.
  Held leaving(const User& user) const;

  mutable std::mutex mutex_;
  UserLimitsTable limits_;
  std::string why_closed_;  // Empty: it is open.
  std::set<Stay*> stays_;
  std::vector<Leaving> leaving_;
};

}  // namespace gpurun::server
