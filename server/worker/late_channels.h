// LateChannels: the bulk connections that gpurund passes on while the session runs. Each is proved
// as the first ones were, by gpurund or, of an encrypted session, here, within the handshake's
// deadline; one that is not is closed, and the session goes on without it.
#pragma once

#include <atomic>
#include <mutex>
#include <thread>

#include "base/unique_fd.h"
#include "server/daemon/spawn_hand_over.h"
#include "server/worker/worker.h"

namespace gpurun::server {

class LateChannels final : public LateConnections {
 public:
  // `socket`: the hand-over's. Copies what proves connections of an encrypted session, so it comes
  // before secure_channels(), which replaces the key.
  LateChannels(UniqueFd socket, const HandOver& hand_over);
  ~LateChannels() override { stop(); }
  LateChannels(const LateChannels&) = delete;
  LateChannels& operator=(const LateChannels&) = delete;

  Status start(BulkLanes& lanes) override;
  void stop() override;

 private:
  void run(BulkLanes& lanes);
  Status take_next(BulkLanes& lanes);

  const UniqueFd socket_;
  HandOver session_;  // Without connections.
  std::atomic<bool> stopping_{false};
  std::mutex mutex_;
  transport::Connection* in_handshake_ = nullptr;  // Guarded by mutex_: what stop() hangs up on.
  std::thread thread_;
};

}  // namespace gpurun::server
