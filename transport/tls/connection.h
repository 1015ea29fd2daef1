// Connection over TLS 1.3: encrypts what is sent over another connection, and decrypts what comes.
//
// Sending and receiving share nothing (record.h), so two threads may be in them at once without a
// lock. A message longer than a record goes out in batches of records, one send() of the connection
// below each. Keys are renewed after kRecordsPerKey records, and when the peer asks.
//
// More errors than transport.h's: receive() answers kProtocol, finally, when what came is not what
// the peer has sealed. The way out stays open then, so that the peer can be told why we end.
// The end of the connection below is the end of this one: that what was said is whole, is for the
// protocol above to say (a goodbye), as it is over TCP.
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
  // False: nothing is taken from the connection below beyond the record that is asked for, so that
  // its descriptor is readable when, and only when, there is something to receive.
  bool reads_ahead = true;
  std::uint64_t records_per_key = kRecordsPerKey;  // Another is for tests.
};

// `channel` is what a handshake over `below` has left; `below` is taken on success only.
// kInternal: OpenSSL does not work.
Result<std::unique_ptr<Connection>> secure(std::unique_ptr<Connection>&& below, Channel channel,
                                           const TlsOptions& options = {});

}  // namespace gpurun::transport::tls
