// Deaths: what gpurun hears of workers and servers that died, so that it is said once: by the
// process that lost its GPU, with its last call, or, where no process says it in time, by gpurun.
//
// One thread.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "client/death_board.h"
#include "protocol/control.h"

namespace gpurun::tools {

class Deaths {
 public:
  using Clock = std::chrono::steady_clock;
  // `board` nullptr: there is none, and gpurun says all itself.
  Deaths(client::DeathBoard* board, std::function<void(const std::string&)> say)
      : board_(board), say_(std::move(say)) {}

  void worker_died(const protocol::WorkerEnded& ended);
  // The lease's link has ended. With a server of our own that is soon explained by its end.
  void lease_ended(const std::string& server, const Status& how, bool own_server);
  // A server of our own has ended.
  void server_ended(const std::string& how);

  // Says what no process has said in time. Milliseconds until it wants to be asked again; -1: it
  // has nothing to say.
  int tick(Clock::time_point now = Clock::now());
  // The program has ended: says what no process has said.
  void finish();

 private:
  struct Untold {
    bool on_board;
    unsigned number;  // There.
    std::string text;
    Clock::time_point until;
    bool link;  // Of our own server.
  };
  void add(bool on_board, unsigned number, const std::string& text, std::chrono::milliseconds wait);

  client::DeathBoard* board_;
  std::function<void(const std::string&)> say_;
  std::vector<Untold> untold_;
  bool own_server_ended_ = false;
};

}  // namespace gpurun::tools
