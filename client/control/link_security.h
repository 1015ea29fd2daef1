// LinkSecurity: whether a control link is encrypted, and which server it trusts.
//
// Beyond this machine a link uses TLS 1.3 unless its user has allowed plaintext. A link uses TLS
// 1.3 everywhere if the server's key is pinned (known_servers.h), or named by a fingerprint or by
// authorities. There are four ways to know the server's key. Its fingerprint was given, authorities
// have signed its certificate for this host, it is pinned, or it was met first at this address.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/deadline.h"
#include "base/result.h"
#include "client/control/known_servers.h"
#include "protocol/auth/proof.h"
#include "transport/tls/certificate.h"
#include "transport/transport.h"

namespace gpurun::client {

struct LinkSecurity {
  bool always_tls = false;          // Also within this machine, though no key is named.
  bool insecure_plaintext = false;  // Beyond it plaintext is allowed.
  std::optional<transport::tls::Fingerprint> fingerprint = {};
  std::string authorities_file = {};
  std::string known_servers = {};  // Empty: default_known_servers().
  // The server is the caller's own child, and uses TLS only on request. Pinned keys belong to
  // servers that had its port before.
  bool own_server = false;
  // Reports what a user should know: a server was met for the first time.
  std::function<void(const std::string&)> say = {};
};

// The rule by which a link has accepted its server's key.
enum class KeyRule {
  kNotEncrypted,  // The server has shown no key.
  kFingerprint,   // It is the one that LinkSecurity::fingerprint names.
  kAuthorities,   // An authority of LinkSecurity::authorities_file signed its certificate.
  kAuthoritiesFingerprint,  // Both.
  kPinned,                  // It is the one that the user has pinned.
  kMetBefore,               // It is the one of the first meeting, and nobody has compared it.
  kMetNow,                  // This is the first meeting.
};

struct ServerKey {
  KeyRule rule = KeyRule::kNotEncrypted;
  transport::tls::Fingerprint shown = {};  // All zero: it is not encrypted.
};

struct SecuredLink {
  std::unique_ptr<transport::Connection> connection;
  ServerKey key = {};
  // The channel's exporter (protocol/auth/proof.h). Empty: nothing is encrypted.
  std::optional<protocol::Nonce> exporter = {};
};

// kInvalidArgument: a key is named, and plaintext is allowed.
Status check_link_security(const LinkSecurity& security);

struct LinkDecision {
  bool tls = false;
  std::optional<PinnedKey> pinned = {};  // The key that the server must show.
};

// Decides how a link to `server` ("host:port") is secured.
//   kInvalidArgument   the server's key is named or pinned, and plaintext is allowed.
// And the errors of pinned_key().
Result<LinkDecision> decide_link(const LinkSecurity& security, const std::string& server,
                                 bool in_this_machine);

// Adds to a failed TLS handshake the line that pins the server's key.
Status name_pin(const Status& failure, const LinkDecision& decision);

// Secures `connection`, which was just opened to `host` by the name `server` ("host:port").
//   kInvalidArgument   as decide_link().
//   kRefused           the server's key is not the expected one, or it has no key.
//   kProtocol          it does not use TLS.
//   kDeadline, kPeerGone
Result<SecuredLink> secure_link(std::unique_ptr<transport::Connection> connection,
                                const std::string& host, const std::string& server,
                                const LinkSecurity& security, Deadline deadline);

}  // namespace gpurun::client
