// Known servers: the keys that a user has met, by address, as in ssh's known_hosts.
//
// A text file with one server a line: "HOST:PORT sha256:HEX [pinned]". '#' begins a comment.
// `pinned` marks a key that the user has confirmed, as `gpurun login` does. Each user has a file,
// which only that user may write. Not for the client library. Any thread.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "transport/tls/certificate.h"

namespace gpurun::client {

// known_servers in gpurun's folder of this user's configuration (XDG Base Directory Specification).
// Empty: the environment names no such folder.
std::string default_known_servers();

enum class Acquaintance { kKnown, kNew };

// Compares `key` with the recorded key of `server`. kKnown: they are equal. kNew: no key was
// recorded, and `key` is recorded now. kRefused: another key is recorded, or the file is not
// trusted. The message names the remedy. kUnavailable and others: the file cannot be read or
// written.
Result<Acquaintance> meet_server(const std::string& path, const std::string& server,
                                 const transport::tls::Fingerprint& key);

// As meet_server(), but records nothing.
Result<Acquaintance> look_up_server(const std::string& path, const std::string& server,
                                    const transport::tls::Fingerprint& key);

// As meet_server(), and marks the server's line as pinned.
Result<Acquaintance> pin_server(const std::string& path, const std::string& server,
                                const transport::tls::Fingerprint& key);

struct PinnedKey {
  transport::tls::Fingerprint key{};
  std::string place;  // FILE:LINE.
};

// Returns the key that is pinned for `server`, or nullopt if there is no such line or no such file.
// It creates no file. kRefused: the file is not trusted, or the line has no fingerprint.
// kUnavailable and others: the file cannot be read.
Result<std::optional<PinnedKey>> pinned_key(const std::string& path, const std::string& server);

}  // namespace gpurun::client
