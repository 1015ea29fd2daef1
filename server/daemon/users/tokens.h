// TokenStore: the users' tokens as their file has them now (protocol/auth/token_file.h). The file
// is the only source: a change by an operator's gpuctl takes effect without a message. A file that
// could not be read is read again until it can be, so that no revocation is lost.
//
// Any thread except the daemon's loop, because a disk may make a reader wait.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "protocol/auth/token_file.h"

namespace gpurun::server {

class TokenStore {
 public:
  // How often the last use of tokens is written, at most. It is also written at the end.
  static constexpr std::chrono::seconds kWriteUsedEvery{60};

  // Wait for a process that holds the file's lock. Revocations and the daemon's end are delayed by
  // it.
  static constexpr std::chrono::milliseconds kWriteUsedLockWait{200};

  // Time until a file that could not be read is read again.
  static constexpr std::chrono::milliseconds kReadAgainAfter{1000};

  // `path` may not exist yet. Empty: there are no tokens here. `in_use` is held as long as this
  // object reads the file (protocol::note_token_file_in_use). Tests set other times.
  explicit TokenStore(std::string path, UniqueFd in_use = {},
                      std::chrono::milliseconds read_again_after = kReadAgainAfter,
                      std::chrono::seconds write_used_every = kWriteUsedEvery);
  ~TokenStore();
  TokenStore(const TokenStore&) = delete;
  TokenStore& operator=(const TokenStore&) = delete;

  // The file's present entry for that token, or nothing. A file that is not trusted or not valid is
  // a failure, with a sentence for the log. Then no token is accepted.
  Result<std::optional<protocol::TokenEntry>> find(const protocol::TokenId& id);
  // Records a use of that token. The file has it after the next write_used().
  void used(const protocol::TokenId& id);
  // Writes the uses to the file when it is time. Waits at most kWriteUsedLockWait for the file's
  // lock.
  void write_used_when_due();

  struct Change {
    protocol::TokenEntry entry;
    bool ended = false;   // False: it is new.
    bool spared = false;  // Ended, but its leases go on.
  };
  // The changes since the last call. Tokens that were there at the start are not new. A file that
  // is not trusted yields no changes.
  std::vector<Change> changes();

 private:
  using Entries = std::map<protocol::TokenId, protocol::TokenEntry>;
  void read_again();
  Result<std::vector<protocol::TokenEntry>> read_with_reserve();
  void failed(Status failure);  // Call with mutex_ held, as the next.
  void note_changes(const Entries& entries);
  void write_used();

  const std::string path_;
  const UniqueFd in_use_;
  const std::chrono::milliseconds read_again_after_;
  const std::chrono::seconds write_used_every_;
  std::mutex reading_;  // One thread reads at a time. Taken before mutex_.
  UniqueFd reserve_;    // Used when the process has no other descriptor. Under reading_.
  std::mutex mutex_;    // Not held over a system call.
  bool read_ = false, read_well_ = false;
  protocol::FileStamp stamp_;  // Taken before the last reading.
  Status failure_;             // The last reading's.
  std::chrono::steady_clock::time_point failed_at_;
  Entries entries_;  // Of the last good reading.
  std::vector<Change> changes_;
  std::map<protocol::TokenId, std::int64_t> used_;  // Not in the file yet.
  std::chrono::steady_clock::time_point used_written_;
};

// Seconds since 1970, as in the file.
std::int64_t seconds_now();

}  // namespace gpurun::server
