// TokenStore: checks the file's stamp with one system call, and reads the file only when it has
// changed.
#include "server/daemon/users/tokens.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>

#include <ctime>
#include <utility>

namespace gpurun::server {

using protocol::TokenEntry;
using protocol::TokenState;

std::int64_t seconds_now() { return std::int64_t{std::time(nullptr)}; }

TokenStore::TokenStore(std::string path, UniqueFd in_use,
                       std::chrono::milliseconds read_again_after,
                       std::chrono::seconds write_used_every)
    : path_(std::move(path)),
      in_use_(std::move(in_use)),
      read_again_after_(read_again_after),
      write_used_every_(write_used_every),
      reserve_(open("/dev/null", O_RDONLY | O_CLOEXEC)),
      used_written_(std::chrono::steady_clock::now()) {
  read_again();
}

TokenStore::~TokenStore() { write_used(); }

// Takes the stamp before it reads the file, so that the next call reads what is written meanwhile.
// The stamp of a failed reading counts for a moment only.
void TokenStore::read_again() {
  if (path_.empty()) return;
  const std::lock_guard reading(reading_);
  const protocol::FileStamp stamp = protocol::token_file_stamp(path_);
  {
    const std::lock_guard lock(mutex_);
    const bool due =
        !failure_.ok() && std::chrono::steady_clock::now() - failed_at_ >= read_again_after_;
    if (read_ && stamp == stamp_ && !due) return;
  }
  Result<std::vector<TokenEntry>> read = read_with_reserve();
  const std::lock_guard lock(mutex_);
  stamp_ = stamp;
  read_ = true;
  if (!read.ok()) return failed(read.status());
  if (!failure_.ok()) spdlog::info("user tokens are accepted again: {} was read", path_);
  failure_ = Status();
  Entries entries;
  for (TokenEntry& entry : *read) entries.emplace(entry.id, std::move(entry));
  if (std::exchange(read_well_, true)) note_changes(entries);
  entries_ = std::move(entries);
}

// When the process has no descriptor left, the reserved one makes room. If another thread takes
// that one, this reading fails, and a later one may succeed.
Result<std::vector<TokenEntry>> TokenStore::read_with_reserve() {
  auto read = protocol::read_token_file(path_, protocol::TokenFileUse::kServer);
  if (read.ok() || read.status().code() != Code::kResourceExhausted) return read;
  reserve_.reset();
  read = protocol::read_token_file(path_, protocol::TokenFileUse::kServer);
  reserve_.reset(open("/dev/null", O_RDONLY | O_CLOEXEC));
  return read;
}

void TokenStore::failed(Status failure) {
  if (failure.message() != failure_.message()) {
    spdlog::error("no user token is accepted: {}", failure.message());
  }
  failure_ = std::move(failure);
  failed_at_ = std::chrono::steady_clock::now();
}

void TokenStore::note_changes(const Entries& entries) {
  for (const auto& [id, before] : entries_) {
    const auto found = entries.find(id);
    const bool is_there = found != entries.end();
    const TokenState now = is_there ? found->second.state : TokenState::kRevoked;
    if (before.state == TokenState::kRevoked || now == before.state) continue;
    // The line of a retired token disappears after a while, which ends nothing.
    if (before.state == TokenState::kRetired && !is_there) continue;
    const TokenEntry& told = is_there ? found->second : before;
    changes_.push_back({told, true, now == TokenState::kRetired});
  }
  for (const auto& [id, entry] : entries) {
    if (entry.state != TokenState::kValid || entries_.count(id) != 0) continue;
    changes_.push_back({entry, false, false});
  }
}

Result<std::optional<TokenEntry>> TokenStore::find(const protocol::TokenId& id) {
  read_again();
  const std::lock_guard lock(mutex_);
  if (!failure_.ok()) return failure_;
  const auto found = entries_.find(id);
  return found == entries_.end() ? std::optional<TokenEntry>() : found->second;
}

std::vector<TokenStore::Change> TokenStore::changes() {
  read_again();
  const std::lock_guard lock(mutex_);
  return std::exchange(changes_, {});
}

void TokenStore::used(const protocol::TokenId& id) {
  const std::lock_guard lock(mutex_);
  used_[id] = seconds_now();
}

void TokenStore::write_used_when_due() {
  {
    const std::lock_guard lock(mutex_);
    if (std::chrono::steady_clock::now() - used_written_ < write_used_every_) return;
  }
  write_used();
}

// Call without our locks, because another process may hold the file's lock.
void TokenStore::write_used() {
  std::map<protocol::TokenId, std::int64_t> used;
  {
    const std::lock_guard lock(mutex_);
    used_written_ = std::chrono::steady_clock::now();
    used.swap(used_);
  }
  if (used.empty()) return;
  const Status written = protocol::update_token_file(
      path_,
      [&used](auto* entries) {
        for (TokenEntry& entry : *entries) {
          const auto found = used.find(entry.id);
          if (found != used.end() && found->second > entry.used) entry.used = found->second;
        }
        return Status();
      },
      protocol::TokenFileUse::kServer, kWriteUsedLockWait);
  if (written.ok()) return;
  // A later call writes what this one could not write. A token may have been used again meanwhile.
  {
    const std::lock_guard lock(mutex_);
    used_.merge(used);
  }
  // This failure refuses no user.
  spdlog::warn("when tokens were used is not kept: {}", written.message());
}

}  // namespace gpurun::server
