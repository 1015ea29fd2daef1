// TLS hello: what the daemon reads and writes of TLS on a connection with a handshake that is not
// its own.
//
// Any thread. All bytes that are read here stay unread for the next owner, except in
// refuse_in_tls().
#pragma once

#include "base/bytes.h"
#include "base/deadline.h"
#include "base/result.h"
#include "transport/tls/client_hello.h"
#include "transport/tls/handshake.h"
#include "transport/transport.h"

namespace gpurun::server {

// Whether the peer's first byte begins a TLS handshake. Waits for that byte.
Result<bool> begins_with_tls(const transport::Connection& connection, Deadline deadline);
// The record with the ClientHello. kTooLarge: beyond limits::kHelloBytesMax.
Result<Bytes> peek_hello(int fd, Deadline deadline);
// Sends the alert. Reads and drops what has come before the connection closes. A close with unread
// bytes would discard the alert.
void refuse_in_tls(transport::Connection& connection, transport::tls::Alert alert);

}  // namespace gpurun::server
