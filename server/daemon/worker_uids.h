// WorkerUids: user numbers that belong to nobody, lent to one worker each, so that a stranger's
// code in a worker reaches neither another worker nor anything of the machine's users.
//
// Several daemons of one machine may lend from the same range: each number that is out is claimed
// by a lock on its byte of one file, which the system lets go however the daemon ends. Daemons that
// do not share the file's folder (containers) may lend the same number, so no process is ended
// because of its number (orphans.h).
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

// Root's daemons share it, however each was started.
inline constexpr const char* kUidClaimsFolder = "/run/gpurun";

class WorkerUids {
 public:
  // Opens, or makes, the file of the claims in `folder`, which all daemons of this machine name.
  // kRefused: others may write folder or file, and could keep us from every number. Else what
  // opening them answered. `range` is not none.
  static Result<std::shared_ptr<WorkerUids>> open(UidRange range,
                                                  const std::string& folder = kUidClaimsFolder);

  const UidRange& range() const { return range_; }
  // One that no running worker has. kResourceExhausted: all are lent. Else what locking the file
  // answered.
  Result<uid_t> lend();
  // Nothing that this daemon has started runs under it any more.
  void take_back(uid_t uid);

 private:
  WorkerUids(UidRange range, UniqueFd claims, uid_t next)
      : range_(range), claims_(std::move(claims)), next_(next) {}

  Result<bool> claim(uid_t uid);

  const UidRange range_;
  const UniqueFd claims_;
  std::mutex mutex_;
  std::set<uid_t> lent_;
  uid_t next_;
};

}  // namespace gpurun::server
