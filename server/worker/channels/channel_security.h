// Channel security: the worker's part of a session's security. It completes the TLS handshakes that
// the daemon only peeked at, and reads the client's Attach inside them before the first frame.
#pragma once

#include "base/deadline.h"
#include "base/result.h"
#include "server/handover/spawn_hand_over.h"
#include "server/worker/channels/worker.h"

namespace gpurun::server {

// For an encrypted session: completes the handshakes of all connections at once and receives the
// client's Attach on each. It sets the hand-over's key to the key that tags our answer, and sets
// its rows and features to those of the client. For other sessions it does nothing. kRefused: the
// channels are secure, and the client is to receive the message over them. After any other failure
// the session ends without an answer.
Status secure_channels(HandOver& hand_over, WorkerChannels& channels, Deadline deadline);

// For a connection that joins a running encrypted session: the same for it alone. `session` is as
// it was handed over. Returns the key that tags our answer. On failure the client receives nothing.
Result<protocol::Key> secure_late(const HandOver& session, std::uint16_t index,
                                  std::unique_ptr<transport::Connection>* connection,
                                  Deadline deadline);

}  // namespace gpurun::server
