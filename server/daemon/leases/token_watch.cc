// TokenWatch: the changes come from TokenStore, in the order of the file.
#include "server/daemon/leases/token_watch.h"

#include <spdlog/spdlog.h>

#include <chrono>
#include <string>
#include <system_error>

namespace gpurun::server {
namespace {

constexpr std::chrono::seconds kApplyChangesEvery{1};

}  // namespace

void TokenWatch::apply_changes() {
  if (tokens_ == nullptr) return;
  const std::lock_guard lock(apply_mutex_);
  for (const TokenStore::Change& change : tokens_->changes()) {
    const std::string name = change.entry.name();
    spdlog::info("token {} of user {} {}", name, change.entry.user,
                 change.ended ? "is revoked" : "is new");
    audit_.write(change.ended ? "token.revoked" : "token.made",
                 {{"user", change.entry.user},
                  {"token", name},
                  {"by", change.ended ? change.entry.ended_by : change.entry.by},
                  {"leases", !change.ended   ? ""
                             : change.spared ? "run-on"
                                             : "end"}});
    if (!change.ended || change.spared) continue;
    const std::string why = "token " + name + " of user " + change.entry.user + " was revoked";
    book_.close(name, why);
    users_.end(name, why);
  }
}

Status TokenWatch::start() {
  if (tokens_ == nullptr) return {};
  try {
    thread_ = std::thread([this] {
      std::unique_lock lock(mutex_);
      while (!ends_) {
        lock.unlock();
        apply_changes();
        tokens_->write_used_when_due();
        lock.lock();
        told_.wait_for(lock, kApplyChangesEvery, [this] { return ends_; });
      }
    });
  } catch (const std::system_error& error) {
    return Status(Code::kResourceExhausted,
                  std::string("no thread to watch the users' tokens: ") + error.what());
  }
  return {};
}

void TokenWatch::end() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  told_.notify_all();
  if (thread_.joinable()) thread_.join();
}

}  // namespace gpurun::server
