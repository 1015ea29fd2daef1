// LinkSecurity: whether a control link is encrypted, and which server it believes.
//
// Beyond this machine a link speaks TLS 1.3 unless its user has said that nothing need be
// encrypted. A link speaks TLS 1.3 everywhere if the server's key is pinned (known_servers.h), or
// is named by a fingerprint or by authorities. The server's key is known in one of four ways: its
// fingerprint was told, authorities have signed its certificate for this host, it is the pinned
// one, or it is the one that was met here first.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/deadline.h"
#include "base/result.h"
#include "client/known_servers.h"
#include "protocol/proof.h"
#include "transport/tls/certificate.h"
#include "transport/transport.h"

namespace gpurun::client {

struct LinkSecurity {
  bool always_tls = false;          // Within this machine as well, though no key is named.
  bool insecure_plaintext = false;  // Beyond it nothing need be encrypted.
  std::optional<transport::tls::Fingerprint> fingerprint = {};
  std::string authorities_file = {};
  std::string known_servers = {};  // Empty: default_known_servers().
  // The server is the caller's own child, which speaks no TLS unless told: pinned keys are those of
  // servers that had its port before.
  bool own_server = false;
  // What a user should know: a server was met for the first time.
  std::function<void(const std::string&)> say = {};
};

struct SecuredLink {
  std::unique_ptr<transport::Connection> connection;
  // The channel's exporter (protocol/proof.h); none: nothing is encrypted.
  std::optional<protocol::Nonce> exporter = {};
};

// kInvalidArgument: a key is named, and nothing need be encrypted.
Status check_link_security(const LinkSecurity& security);

struct LinkDecision {
  bool tls = false;
  std::optional<PinnedKey> pinned = {};  // The key that the server must show.
};

// How a link to `server` ("host:port"), which has an address of this machine or not, is secured.
//   kInvalidArgument   the server's key is named or pinned, and nothing need be encrypted.
//   And what pinned_key() says.
Result<LinkDecision> decide_link(const LinkSecurity& security, const std::string& server,
                                 bool in_this_machine);

// A failed TLS handshake, with the line that pins the key of the server.
Status name_pin(const Status& failure, const LinkDecision& decision);

// `connection` has just been made, to `host` by the name `server` ("host:port").
//   kInvalidArgument   as decide_link().
//   kRefused           the server's key is not the one that it should be, or it has none.
//   kProtocol          it does not speak TLS.
//   kDeadline, kPeerGone
Result<SecuredLink> secure_link(std::unique_ptr<transport::Connection> connection,
                                const std::string& host, const std::string& server,
                                const LinkSecurity& security, Deadline deadline);

}  // namespace gpurun::client
