// TokenStore: the users' tokens as their file says at this moment (protocol/token_file.h). The file
// is the one truth: what an operator's gpuctl changes there is heeded without being told.
//
// Any thread.
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

  // `path` may not exist yet. Empty: there are no tokens here.
  // `in_use`: what is held as long as this reads the file (protocol::note_token_file_in_use).
  explicit TokenStore(std::string path, UniqueFd in_use = {});
  ~TokenStore();
  TokenStore(const TokenStore&) = delete;
  TokenStore& operator=(const TokenStore&) = delete;

  // What the file says of that token now; none: nothing. A file that cannot be believed or
  // understood is a failure, with a sentence for the log: nobody comes in by it.
  Result<std::optional<protocol::TokenEntry>> find(const protocol::TokenId& id);
  void used(const protocol::TokenId& id);

  struct Change {
    protocol::TokenEntry entry;
    bool ended = false;   // Else it is new.
    bool spared = false;  // Ended, but its leases are not to end.
  };
  // What has changed since the last call; all that were there at the start are not new. From a file
  // that cannot be believed nothing follows.
  std::vector<Change> changes();

 private:
  // Under the mutex.
  void read_again();
  void write_used();

  const std::string path_;
  const UniqueFd in_use_;
  std::mutex mutex_;
  bool read_ = false;
  protocol::FileStamp stamp_;
  Status failure_;                                             // Of the last reading.
  std::map<protocol::TokenId, protocol::TokenEntry> entries_;  // Of the last good reading.
  std::vector<Change> changes_;
  std::map<protocol::TokenId, std::int64_t> used_;  // Not in the file yet.
  std::chrono::steady_clock::time_point used_written_;
};

// Seconds since 1970, as in the file.
std::int64_t seconds_now();

}  // namespace gpurun::server
