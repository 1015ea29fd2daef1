// Authenticator: the exchange of challenge, proof and request.
#include "server/daemon/links/authenticator.h"

#include <ctime>
#include <string>
#include <utility>

#include "base/hex.h"
#include "base/random.h"
#include "protocol/auth/token.h"
#include "protocol/limits.h"

namespace gpurun::server {
namespace {

using protocol::ControlFrame;
using protocol::ControlMessage;
using protocol::Sender;
using protocol::TokenEntry;
using protocol::TokenState;

std::string day_of(std::int64_t seconds) {
  char text[32];
  const auto time = static_cast<std::time_t>(seconds);
  std::tm utc = {};
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M UTC", gmtime_r(&time, &utc));
  return text;
}

Status no(const std::string& why) { return Status(Code::kRefused, why); }

// Checks that a proved token is still valid.
Status check_valid(const TokenEntry& entry) {
  const std::string token = "token " + entry.name() + " of user " + entry.user;
  if (entry.state != TokenState::kValid) {
    return no(token + " was revoked on " + day_of(entry.ended));
  }
  if (entry.expired(seconds_now())) return no(token + " expired on " + day_of(entry.expires));
  return {};
}

// Returns the secret that the proof shows, if it is the token's.
std::optional<protocol::Key> shown_by(const ControlFrame& frame, const protocol::Key& check,
                                      const protocol::Nonce& ours, const protocol::Hello& hello) {
  const Result<ControlMessage> message = protocol::decode(frame.payload);
  const auto* proof = message.ok() ? std::get_if<protocol::TokenProof>(&*message) : nullptr;
  if (proof == nullptr) return std::nullopt;
  return protocol::unmask_token(proof->masked, check, ours, hello.nonce, *hello.token);
}

}  // namespace

// The request is the proof. With a token the frame before it is a proof, too. Both are read before
// any refusal, because a close with unread bytes would discard the refusal. Inside TLS both have
// come with the hello: a client that knows the channel does not need the challenge.
Result<Asked> Authenticator::identify(transport::Connection& connection,
                                      const protocol::Hello& hello, const Exporter& exporter,
                                      Deadline deadline) const {
  const Result<protocol::Nonce> ours =
      exporter ? Result<protocol::Nonce>(*exporter) : random_array<protocol::Nonce>();
  if (!ours.ok()) return ours.status();
  const protocol::Challenge challenge{protocol::our_version(Sender::kServer),
                                      exporter ? protocol::Nonce{} : *ours};
  GPURUN_RETURN_IF_ERROR(protocol::send_control(connection, challenge, deadline));
  ControlFrame proof;
  if (hello.token) {
    Result<ControlFrame> frame =
        protocol::receive_control(connection, limits::kHelloBytesMax, deadline);
    if (!frame.ok()) return frame.status();
    proof = *std::move(frame);
  }
  Result<ControlFrame> request =
      protocol::receive_control(connection, limits::kHelloBytesMax, deadline);
  if (!request.ok()) return request.status();
  const auto kind = exporter ? protocol::Link::kControlInTls : protocol::Link::kControl;
  const auto key_of = [&](ByteView secret) {
    return protocol::link_key(secret, kind, *ours, hello.nonce, {});
  };
  if (!hello.token) {
    const WipedKey key = key_of(settings_.get()->secret);
    if (!protocol::proved(*request, key, Sender::kClient, 0)) return no("the secret is wrong");
    return Asked{{}, key, std::move(request->payload)};
  }
  const User claimed{"", hex_of(bytes_of(*hello.token))};
  if (tokens_ == nullptr) return no("this server knows no tokens of users");
  const Result<std::optional<TokenEntry>> entry = tokens_->find(*hello.token);
  if (!entry.ok()) {
    return Status(Code::kUnavailable, "this server cannot read its tokens; its log has the reason");
  }
  const auto secret = shown_by(proof, *entry ? (*entry)->check : protocol::Key{}, *ours, hello);
  if (!*entry || !secret) {
    return no("this server does not know token " + claimed.token +
              "; perhaps it was revoked, or is another server's");
  }
  const WipedKey key = key_of(bytes_of(*secret));
  if (!protocol::proved(*request, key, Sender::kClient, 0)) return no("the request is not proved");
  GPURUN_RETURN_IF_ERROR(check_valid(**entry));
  tokens_->used(*hello.token);
  return Asked{{(*entry)->user, claimed.token}, key, std::move(request->payload)};
}

Status Authenticator::check_still_valid(const User& user) const {
  if (user.is_operator()) return {};
  const Result<protocol::TokenId> id = protocol::parse_token_id(user.token);
  if (!id.ok()) return id.status();
  const auto entry = tokens_->find(*id);
  if (!entry.ok()) return no("this server cannot read its tokens; its log has the reason");
  if (!*entry) return no("token " + user.token + " of user " + user.name + " was revoked");
  return check_valid(**entry);
}

}  // namespace gpurun::server
