// Deaths: what goes on the board, and what gpurun reports when no process takes it from there.
#include "tools/gpurun/deaths.h"

#include <algorithm>

namespace gpurun::tools {
namespace {

// A process that is not stopped asks within client::kNewsPatience.
constexpr std::chrono::milliseconds kProcessesSayIt{1'500};
// The link of our own server ends a moment before or after that server.
constexpr std::chrono::milliseconds kServerEnds{500};
constexpr int kLookAgainMs = 50;

}  // namespace

void Deaths::add(bool on_board, unsigned number, const std::string& text,
                 std::chrono::milliseconds wait) {
  untold_.push_back({on_board && board_ != nullptr, number, text, Clock::now() + wait, false});
  if (on_board && board_ == nullptr) untold_.back().until = Clock::now();
}

void Deaths::worker_died(const protocol::WorkerEnded& ended) {
  const unsigned number =
      board_ == nullptr
          ? 0
          : board_->worker_died(ended.session, "the worker of this process died: " + ended.how);
  add(true, number,
      "the worker of a process died: " + ended.how + "; its CUDA calls fail from now on",
      kProcessesSayIt);
}

void Deaths::lease_ended(const std::string& server, const Status& how, bool own_server) {
  const std::string text = how.message() + "; the program's CUDA calls fail from now on";
  if (own_server) {
    if (own_server_ended_) return;
    add(false, 0, text, kServerEnds);
    untold_.back().link = true;
    return;
  }
  const std::string named = "server " + server + " ";
  const std::string quoted = "server " + server + ": ";  // The server's own sentence.
  std::string shown = how.message();
  if (shown.compare(0, named.size(), named) == 0) shown.replace(0, named.size(), "it ");
  if (shown.compare(0, quoted.size(), quoted) == 0) shown.erase(0, quoted.size());
  add(true, board_ == nullptr ? 0 : board_->server_ended(shown), text, kProcessesSayIt);
}

void Deaths::server_ended(const std::string& how) {
  own_server_ended_ = true;
  std::erase_if(untold_, [](const Untold& each) { return each.link; });
  const std::string text = "the private server has ended (" + how + ")";
  add(true, board_ == nullptr ? 0 : board_->server_ended(text),
      text + "; the program's CUDA calls fail from now on", kProcessesSayIt);
}

int Deaths::tick(Clock::time_point now) {
  std::erase_if(untold_, [&](const Untold& each) {
    if (each.on_board && board_->told(each.number)) return true;
    if (now < each.until) return false;
    say_(each.text);
    return true;
  });
  return untold_.empty() ? -1 : kLookAgainMs;
}

void Deaths::finish() { tick(Clock::time_point::max()); }

}  // namespace gpurun::tools
