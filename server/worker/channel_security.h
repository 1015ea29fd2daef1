// The worker's part of a session's security: the TLS handshakes that its daemon only looked at, and
// what the client says inside them before its first frame.
#pragma once

#include "base/deadline.h"
#include "base/result.h"
#include "server/daemon/spawn_hand_over.h"
#include "server/worker/worker.h"

namespace gpurun::server {

// Of an encrypted session: ends the handshakes of all connections at once, and hears the client's
// Attach on each. Sets the hand-over's key to the one that tags our answer, and its rows and
// features to what the client said. Of another session: nothing. kRefused: what the client is to be
// told, over channels that are secured then; else the session ends unanswered.
Status secure_channels(HandOver& hand_over, WorkerChannels& channels, Deadline deadline);

// Of a connection that joins an encrypted session which runs: the same for it alone. `session` is
// as it was handed over. The key that tags our answer; the client is told nothing on failure.
Result<protocol::Key> secure_late(const HandOver& session, std::uint16_t index,
                                  std::unique_ptr<transport::Connection>* connection,
                                  Deadline deadline);

}  // namespace gpurun::server
