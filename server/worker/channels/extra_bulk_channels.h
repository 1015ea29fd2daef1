// ExtraBulkChannels: the bulk connections that gpurund passes on while the session runs. Each one
// is proved as the first ones were, within the deadline of the handshake.
//
// For an encrypted session this class proves it, otherwise gpurund does. A connection that fails
// its proof is closed, and the session continues without it.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

#include "base/unique_fd.h"
#include "server/handover/spawn_hand_over.h"
#include "server/worker/channels/worker.h"

namespace gpurun::server {

class ExtraBulkChannels final : public ExtraBulkSource {
 public:
  // `socket` is that of the hand-over. The constructor copies what proves connections of an
  // encrypted session, so it must run before secure_channels(), which replaces the key.
  ExtraBulkChannels(UniqueFd socket, const HandOver& hand_over);
  ~ExtraBulkChannels() override { stop(); }
  // Called for a memory file that the client offers in place of a bulk connection. Set it before
  // start(). Without it such a file is refused.
  using TakeFile = std::function<Status(UniqueFd)>;
  void set_take_file(TakeFile take) { take_file_ = std::move(take); }

  ExtraBulkChannels(const ExtraBulkChannels&) = delete;
  ExtraBulkChannels& operator=(const ExtraBulkChannels&) = delete;

  Status start(BulkLanes& lanes) override;
  void stop() override;

 private:
  void run(BulkLanes& lanes);
  Status take_next(BulkLanes& lanes);

  const UniqueFd socket_;
  HandOver session_;  // Without connections.
  TakeFile take_file_;
  std::atomic<bool> stopping_{false};
  std::mutex mutex_;
  transport::Connection* in_handshake_ = nullptr;  // Guarded by mutex_. stop() shuts it down.
  std::thread thread_;
};

}  // namespace gpurun::server
