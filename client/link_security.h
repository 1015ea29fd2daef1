// LinkSecurity: whether a control link is encrypted, and which server it believes.
//
// Beyond this machine a link speaks TLS 1.3 unless its user has said that nothing need be
// encrypted. A link whose server's key is named by a fingerprint or by authorities speaks TLS 1.3
// everywhere. The server's key is known in one of three ways: its fingerprint was told, authorities
// have signed its certificate for this host, or it is the one that was met here first.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/deadline.h"
#include "base/result.h"
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

// `connection` has just been made, to `host` by the name `server` ("host:port").
//   kInvalidArgument   as check_link_security().
//   kRefused           the server's key is not the one that it should be, or it has none.
//   kProtocol          it does not speak TLS.
//   kDeadline, kPeerGone
Result<SecuredLink> secure_link(std::unique_ptr<transport::Connection> connection,
                                const std::string& host, const std::string& server,
                                const LinkSecurity& security, Deadline deadline);

}  // namespace gpurun::client
