// WorkerUids: user numbers that belong to nobody, lent to one worker each, so that a stranger's
// code in a worker reaches neither another worker nor anything of the machine's users.
//
// Several daemons of one machine may lend from the same range: each number that is out is claimed
// by a lock on its byte of one file, which the system lets go however the daemon ends.
//
// Any thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "base/result.h"
#include "base/unique_fd.h"

namespace gpurun::server {

// Both ends belong to it; first 0: no range, workers keep the daemon's user.
struct UidRange {
  // Above what systemd's documentation of user numbers gives to anybody (1879048192 and up), below
  // what 32-bit signed numbers hold.
  uid_t first = 2'000'000'000;
  uid_t last = 2'000'004'095;

  bool none() const { return first == 0; }
  std::uint64_t count() const { return none() ? 0 : std::uint64_t{last} - first + 1; }
};

// Whether this process may become the users of `range`: kRefused when a user namespace (a
// container) does not know them, or when it is not root.
Status can_become(const UidRange& range);

inline constexpr const char* kUidClaims = "/run/lock/gpurund-worker-uids";

class WorkerUids {
 public:
  // `claims` is the file that all daemons of this machine share.
  explicit WorkerUids(UidRange range, std::string claims = kUidClaims)
      : range_(range), claims_path_(std::move(claims)) {}

  // One that no running worker has; 0 when there is no range. kResourceExhausted: all are lent.
  // Else what opening or locking the file answered.
  Result<uid_t> lend();
  // Kills whatever still runs under it first: a worker may have started processes of its own.
  void take_back(uid_t uid);

 private:
  Status open_claims();
  Result<bool> claim(uid_t uid);

  const UidRange range_;
  const std::string claims_path_;
  std::mutex mutex_;
  UniqueFd claims_;  // Opened at the first need.
  std::set<uid_t> lent_;
  uid_t next_ = 0;
};

}  // namespace gpurun::server
