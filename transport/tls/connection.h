// TLS connection: encrypts what is sent over another connection, and decrypts what comes (TLS 1.3).
//
// Sending and receiving share no state (record.h), so that two threads may do both at once without
// a lock. A message longer than a record goes out in batches of records, each batch by one send()
// of the connection below. Keys are renewed after kRecordsPerKey records, and when the peer asks.
//
// It adds one error to those of transport.h: receive() returns kProtocol, finally, when it gets
// bytes that the peer has not sealed. Sending still works then, so that this end can send the
// reason.
//
// The end of the connection below is the end of this one. A protocol above must mark the complete
// end of its data itself (a goodbye), as over TCP.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "transport/tls/handshake.h"
#include "transport/tls/record.h"
#include "transport/transport.h"

namespace gpurun::transport::tls {

// AES-128-GCM protects 2^24.5 full records with one key well (RFC 8446, section 5.5).
inline constexpr std::uint64_t kRecordsPerKey = std::uint64_t{1} << 23;

struct TlsOptions {
  // False: reads no more from the connection below than the record that is asked for. Then its
  // descriptor is readable exactly when there is something to receive.
  bool reads_ahead = true;
  std::uint64_t records_per_key = kRecordsPerKey;  // Tests set another value.
};

// `channel` is the result of a handshake over `below`. `below` is taken on success only. kInternal:
// OpenSSL does not work.
Result<std::unique_ptr<Connection>> secure(std::unique_ptr<Connection>&& below, Channel channel,
                                           const TlsOptions& options = {});

}  // namespace gpurun::transport::tls
