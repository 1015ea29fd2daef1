// Deaths: ends of workers and servers that gpurun learns of, so that each is reported once. The
// process that lost its GPU reports it with its last call. When no process does so in time, gpurun
// reports it.
//
// One thread.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "client/session/worker_exit_page.h"
#include "protocol/control/control.h"

namespace gpurun::tools {

class Deaths {
 public:
  using Clock = std::chrono::steady_clock;
  // `board` nullptr: there is no such page, and gpurun reports everything itself.
  Deaths(client::WorkerExitPage* board, std::function<void(const std::string&)> say)
      : board_(board), say_(std::move(say)) {}

  void worker_died(const protocol::WorkerEnded& ended);
  // The lease's link has ended. For our own server, its end will soon explain that.
  void lease_ended(const std::string& server, const Status& how, bool own_server);
  // Our own server has ended.
  void server_ended(const std::string& how);

  // Reports what no process has reported in time. Returns the milliseconds until the next call, or
  // -1 when there is nothing to report.
  int tick(Clock::time_point now = Clock::now());
  // The program has ended. Reports what no process has reported.
  void finish();

 private:
  struct Untold {
    bool on_board;
    unsigned number;  // On the board.
    std::string text;
    Clock::time_point until;
    bool link;  // The link of our own server.
  };
  void add(bool on_board, unsigned number, const std::string& text, std::chrono::milliseconds wait);

  client::WorkerExitPage* board_;
  std::function<void(const std::string&)> say_;
  std::vector<Untold> untold_;
  bool own_server_ended_ = false;
};

}  // namespace gpurun::tools
