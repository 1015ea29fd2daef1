// WorkerUids: unused user numbers, each lent to one worker. So an untrusted program in a worker
// reaches neither another worker nor data of the machine's users.
//
// Several daemons of one machine may lend from the same range. Each lent number is claimed by a
// lock on its byte of one file, which the system releases however the daemon ends. Daemons that do
// not share the file's folder (containers) may lend the same number, so no process is ended because
// of its number (orphans.h).
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

// Both ends are included. first 0: no range, and workers keep the daemon's user.
struct UidRange {
  // Above all numbers that systemd's documentation assigns (1879048192 and up), and within 32-bit
  // signed numbers.
  uid_t first = 2'000'000'000;
  uid_t last = 2'000'004'095;

  bool none() const { return first == 0; }
  std::uint64_t count() const { return none() ? 0 : std::uint64_t{last} - first + 1; }
};

// Success when this process may become the users of `range`. kRefused: a user namespace (a
// container) does not know them, or this process is not root.
Status can_become(const UidRange& range);

// All daemons of root share it, however each was started.
inline constexpr const char* kUidClaimsFolder = "/run/gpurun";

class WorkerUids {
 public:
  // Opens or makes the file of claims in `folder`, which all daemons of this machine use. kRefused:
  // others may write the folder or the file, and could block every number. Otherwise the error of
  // opening them. `range` must not be empty.
  static Result<std::shared_ptr<WorkerUids>> open(UidRange range,
                                                  const std::string& folder = kUidClaimsFolder);

  const UidRange& range() const { return range_; }
  // A number that no running worker has. kResourceExhausted: all are lent. Otherwise the error of
  // locking the file.
  Result<uid_t> lend();
  // Call when nothing that this daemon has started runs under it any more.
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
