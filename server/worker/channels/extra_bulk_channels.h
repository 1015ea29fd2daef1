// ExtraBulkChannels: the bulk connections that gpurund passes on while the session runs. Each one
// is proved as the first ones were, within the deadline of the handshake.
//
// For an encrypted session this class proves it, otherwise gpurund does. A connection that fails
// its proof is closed, and the session continues without it.
#pragma once

#include <atomic>
#include <mutex>
#include <thread>

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
  ExtraBulkChannels(const ExtraBulkChannels&) = delete;
  ExtraBulkChannels& operator=(const ExtraBulkChannels&) = delete;

  Status start(BulkLanes& lanes) override;
  void stop() override;

 private:
  void run(BulkLanes& lanes);
  Status take_next(BulkLanes& lanes);

  const UniqueFd socket_;
  HandOver session_;  // Without connections.
  std::atomic<bool> stopping_{false};
  std::mutex mutex_;
  transport::Connection* in_handshake_ = nullptr;  // Guarded by mutex_. stop() shuts it down.
  std::thread thread_;
};

}  // namespace gpurun::server
