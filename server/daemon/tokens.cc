// A look at the file's stamp is one system call; it is read only when that has changed.
#include "server/daemon/tokens.h"

#include <spdlog/spdlog.h>

#include <ctime>
#include <utility>

namespace gpurun::server {

using protocol::TokenEntry;
using protocol::TokenState;

std::int64_t seconds_now() { return std::int64_t{std::time(nullptr)}; }

TokenStore::TokenStore(std::string path, UniqueFd in_use)
    : path_(std::move(path)),
      in_use_(std::move(in_use)),
      used_written_(std::chrono::steady_clock::now()) {
  const std::lock_guard lock(mutex_);
  read_again();
}

TokenStore::~TokenStore() {
  const std::lock_guard lock(mutex_);
  write_used();
}

void TokenStore::read_again() {
  if (path_.empty()) return;
  // Before the reading: what is written meanwhile is read the next time.
  const protocol::FileStamp stamp = protocol::token_file_stamp(path_);
  if (read_ && stamp == stamp_) return;
  stamp_ = stamp;
  const bool first = !std::exchange(read_, true);
  Result<std::vector<TokenEntry>> read = protocol::read_token_file(path_);
  if (!read.ok()) {
    failure_ = read.status();
    spdlog::error("no user token is accepted: {}", failure_.message());
    return;
  }
  failure_ = Status();
  std::map<protocol::TokenId, TokenEntry> entries;
  for (TokenEntry& entry : *read) entries.emplace(entry.id, std::move(entry));
  for (const auto& [id, before] : entries_) {
    const auto found = entries.find(id);
    const bool is_there = found != entries.end();
    const TokenState now = is_there ? found->second.state : TokenState::kRevoked;
    if (before.state == TokenState::kRevoked || now == before.state) continue;
    // The line of a retired one goes after a while; that ends nothing.
    if (before.state == TokenState::kRetired && !is_there) continue;
    const TokenEntry& told = is_there ? found->second : before;
    changes_.push_back({told, true, now == TokenState::kRetired});
  }
  for (const auto& [id, entry] : entries) {
    if (first || entry.state != TokenState::kValid || entries_.count(id) != 0) continue;
    changes_.push_back({entry, false, false});
  }
  entries_ = std::move(entries);
}

Result<std::optional<TokenEntry>> TokenStore::find(const protocol::TokenId& id) {
  const std::lock_guard lock(mutex_);
  read_again();
  if (!failure_.ok()) return failure_;
  const auto found = entries_.find(id);
  return found == entries_.end() ? std::optional<TokenEntry>() : found->second;
}

std::vector<TokenStore::Change> TokenStore::changes() {
  const std::lock_guard lock(mutex_);
  read_again();
  return std::exchange(changes_, {});
}

void TokenStore::used(const protocol::TokenId& id) {
  const std::lock_guard lock(mutex_);
  used_[id] = seconds_now();
  if (std::chrono::steady_clock::now() - used_written_ >= kWriteUsedEvery) write_used();
}

void TokenStore::write_used() {
  used_written_ = std::chrono::steady_clock::now();
  if (used_.empty()) return;
  const Status written = protocol::update_token_file(path_, [this](auto* entries) {
    for (TokenEntry& entry : *entries) {
      const auto used = used_.find(entry.id);
      if (used != used_.end() && used->second > entry.used) entry.used = used->second;
    }
    return Status();
  });
  // Nobody is kept out for that.
  if (!written.ok()) spdlog::warn("when tokens were used is not kept: {}", written.message());
  used_.clear();
}

}  // namespace gpurun::server
