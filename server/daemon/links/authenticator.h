// Authenticator: identifies the peer of a control link. The server's own secret or a user's token
// proves it.
//
// Any thread. It has no state but what it borrows.
#pragma once

#include <memory>
#include <optional>

#include "base/bytes.h"
#include "base/deadline.h"
#include "base/result.h"
#include "protocol/auth/proof.h"
#include "protocol/control/control.h"
#include "server/daemon/links/live_settings.h"
#include "server/daemon/users/tokens.h"
#include "server/daemon/users/wiped_key.h"
#include "server/handover/user.h"
#include "transport/transport.h"

namespace gpurun::server {

// The exporter of the TLS channel, if there is one (protocol/auth/proof.h).
using Exporter = std::optional<protocol::Nonce>;

// A proved request of a control link, and its user.
struct Asked {
  User user;
  WipedKey key{};
  Bytes request;  // The request message.
};

class Authenticator {
 public:
  // Empty `tokens`: users have none. Borrows `settings`, which have the server's secret.
  Authenticator(std::shared_ptr<TokenStore> tokens, const CurrentSettings& settings)
      : tokens_(std::move(tokens)), settings_(settings) {}
  Authenticator(const Authenticator&) = delete;
  Authenticator& operator=(const Authenticator&) = delete;

  // Challenges the peer, and receives its proof and its request. kRefused: the message is for the
  // peer. kUnavailable: the tokens cannot be read now. Other errors: the connection's.
  Result<Asked> identify(transport::Connection& connection, const protocol::Hello& hello,
                         const Exporter& exporter, Deadline deadline) const;
  // kRefused: the user's token has ended since.
  Status check_still_valid(const User& user) const;

 private:
  const std::shared_ptr<TokenStore> tokens_;
  const CurrentSettings& settings_;
};

}  // namespace gpurun::server
