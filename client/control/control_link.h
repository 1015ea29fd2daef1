// ControlLink: gpurun's own connection to a gpurund, over which it asks for GPUs. The lease lives
// as long as the link. When the object is destroyed, or gpurun dies, the server ends the workers
// and gives the GPUs to the next in the queue.
//
// Inside TLS the request goes out with the hello and waits for no challenge. The handshake has
// already brought what the proofs need of the server (protocol/auth/proof.h). The server therefore
// sends its version, or its refusal of ours, only after the request.
//
// Not thread-safe.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/deadline.h"
#include "base/result.h"
#include "client/attach/session_data.h"
#include "client/control/link_security.h"
#include "protocol/auth/proof.h"
#include "protocol/auth/token.h"
#include "protocol/control/control.h"
#include "transport/transport.h"

namespace gpurun::client {

struct LeaseRequest {
  unsigned devices = 1;
  // How long to wait in the server's queue. 0: an immediate yes or no.
  std::chrono::milliseconds wait{0};
  std::string program;  // For the server's listings.
  // Called when the request gets a place in the queue, and when the server reports another place.
  // With `again`, also called each time that the server sent nothing for `remind_every` (0: never).
  std::function<void(const protocol::Queued& place, bool again)> on_queued;
  std::chrono::milliseconds remind_every{0};
};

class ControlLink {
 public:
  // `address` is HOST[:PORT]. `secret` is the server's, or empty for a server without one.
  //   kUnavailable      nothing listens there, or the name is unknown.
  //   kInvalidArgument  not an address.
  //   kRefused          the versions differ. Inside TLS request_lease() and list() return this.
  //   kProtocol         the peer is not our gpurund.
  // And the errors of secure_link() (link_security.h).
  static Result<std::unique_ptr<ControlLink>> connect(std::string_view address, ByteView secret,
                                                      Deadline deadline,
                                                      const LinkSecurity& security = {});
  // As connect(), for the user that the token belongs to.
  static Result<std::unique_ptr<ControlLink>> connect_with_token(std::string_view address,
                                                                 const protocol::Token& token,
                                                                 Deadline deadline,
                                                                 const LinkSecurity& security = {});
  ~ControlLink();
  ControlLink(const ControlLink&) = delete;
  ControlLink& operator=(const ControlLink&) = delete;

  // Call it once. The session data has the address of connect().
  //   kRefused   the server refused: wrong secret, no such number of GPUs, none came free. Inside
  //              TLS also: the versions differ.
  //   kProtocol  the server does not know our secret.
  Result<SessionData> request_lease(const LeaseRequest& request);

  // Readable when the server has sent something, or has gone. Then call lease_ended().
  int fd() const noexcept;
  // Ok while the lease lives, then the reason of its end. Waits at most a second, for the rest of a
  // message.
  Status lease_ended();
  // How workers of this lease have died, as lease_ended() has read it. Each is returned once.
  std::vector<protocol::WorkerEnded> take_worker_deaths() {
    return std::exchange(worker_deaths_, {});
  }

  // Instead of a lease: the server's GPUs and their users. Call it once. Errors as request_lease().
  Result<protocol::Listing> list();

  // After request_lease(): the models of the GPUs, each once. Empty: the server does not know.
  const std::vector<std::string>& models() const noexcept { return models_; }
  // After request_lease(): the GPUs are emulated, and run PTX only. False if the server does not
  // report it.
  bool emulated() const noexcept { return emulated_; }
  // The server has proved its identity, and its version is ours. Inside TLS this is false until the
  // first answer to a request.
  bool server_is_known() const noexcept { return server_is_known_; }
  // After a refusal: waiting or asking again changes nothing.
  bool refused_for_good() const noexcept { return refused_for_good_; }
  const std::string& server_release() const noexcept { return server_release_; }
  // The key that the server has shown, and why it was accepted.
  const ServerKey& server_key() const noexcept { return server_key_; }
  // The server has an address of this machine.
  bool same_host() const noexcept { return connection_->capabilities().same_host; }
  bool encrypted() const noexcept { return connection_->capabilities().encrypted; }

 private:
  ControlLink(std::unique_ptr<transport::Connection> connection, std::string address);

  static Result<std::unique_ptr<ControlLink>> open(std::string_view address, ByteView secret,
                                                   const protocol::Token* token, Deadline deadline,
                                                   const LinkSecurity& security);
  Status greet(ByteView secret, const protocol::Token* token,
               const std::optional<protocol::Nonce>& exporter, Deadline deadline);
  Result<protocol::Nonce> hear_challenge(Deadline deadline);
  bool answered_within(std::chrono::milliseconds span, Deadline deadline) const;
  Status ask(const protocol::ControlMessage& request);

  const std::unique_ptr<transport::Connection> connection_;
  const std::string address_;  // "host:port".
  ServerKey server_key_;
  bool server_is_known_ = false;
  bool refused_for_good_ = false;
  std::string server_release_;
  std::vector<std::string> models_;
  bool emulated_ = false;
  protocol::Key key_{};
  Bytes unsent_;  // Frames that are sent before the request, with it.
  std::uint64_t sent_ = 0;
  std::uint64_t received_ = 0;
  std::vector<protocol::WorkerEnded> worker_deaths_;
};

}  // namespace gpurun::client
