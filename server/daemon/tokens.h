// TokenStore: the users' tokens as their file says at this moment (protocol/token_file.h). The file
// is the one truth: what an operator's gpuctl changes there is heeded without being told. A file
// that could not be read is read again until it can be, so that no revocation is lost.
//
// Any thread, but not the daemon's loop: a disk may let a reader wait.
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
#include "protocol/token_file.h"

namespace gpurun::server {

class TokenStore {
 public:
  // When a token was last used is written at most so often, and at the end.
  static constexpr std::chrono::seconds kWriteUsedEvery{60};

  // For a process that holds the lock of the file. Revocations and the daemon's end wait for it.
  static constexpr std::chrono::milliseconds kWriteUsedLockWait{200};

  // How soon a file that could not be read is read again.
  static constexpr std::chrono::milliseconds kReadAgainAfter{1000};

  // `path` may not exist yet. Empty: there are no tokens here.
  // `in_use`: what is held as long as this reads the file (protocol::note_token_file_in_use).
  // Other times are for tests.
  explicit TokenStore(std::string path, UniqueFd in_use = {},
                      std::chrono::milliseconds read_again_after = kReadAgainAfter,
                      std::chrono::seconds write_used_every = kWriteUsedEvery);
  ~TokenStore();
  TokenStore(const TokenStore&) = delete;
  TokenStore& operator=(const TokenStore&) = delete;

  // What the file says of that token now; none: nothing. A file that cannot be believed or
  // understood is a failure, with a sentence for the log: nobody comes in by it.
  Result<std::optional<protocol::TokenEntry>> find(const protocol::TokenId& id);
  // Notes that. The file says so after the next write_used().
  void used(const protocol::TokenId& id);
  // Writes it where that is due. Waits for the lock of the file, for kWriteUsedLockWait at most.
  void write_used_when_due();

  struct Change {
    protocol::TokenEntry entry;
    bool ended = false;   // Else it is new.
    bool spared = false;  // Ended, but its leases are not to end.
  };
  // What has changed since the last call; all that were there at the start are not new. From a file
  // that cannot be believed nothing follows.
  std::vector<Change> changes();

 private:
  using Entries = std::map<protocol::TokenId, protocol::TokenEntry>;
  void read_again();
  Result<std::vector<protocol::TokenEntry>> read_with_reserve();
  void failed(Status failure);  // With mutex_ held, as the next.
  void note_changes(const Entries& entries);
  void write_used();

  const std::string path_;
  const UniqueFd in_use_;
  const std::chrono::milliseconds read_again_after_;
  const std::chrono::seconds write_used_every_;
  std::mutex reading_;  // One thread reads at a time. Taken before the other.
  UniqueFd reserve_;    // For when the process has no other descriptor. With reading_ held.
  std::mutex mutex_;    // Not over a system call.
  bool read_ = false, read_well_ = false;
  protocol::FileStamp stamp_;  // Before the last reading.
  Status failure_;             // Of the last reading.
  std::chrono::steady_clock::time_point failed_at_;
  Entries entries_;  // Of the last good reading.
  std::vector<Change> changes_;
  std::map<protocol::TokenId, std::int64_t> used_;  // Not in the file yet.
  std::chrono::steady_clock::time_point used_written_;
};

// Seconds since 1970, as in the file.
std::int64_t seconds_now();

}  // namespace gpurun::server
