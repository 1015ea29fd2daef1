// Daemon: identifies the peer of a control link. The server's own secret or a user's token proves
// it.
#include <spdlog/spdlog.h>

#include <ctime>
#include <system_error>
#include <thread>

#include "base/hex.h"
#include "server/daemon/daemon.h"

namespace gpurun::server {
namespace {

using protocol::ControlFrame;
using protocol::ControlMessage;
using protocol::Sender;
using protocol::TokenEntry;
using protocol::TokenState;

constexpr std::chrono::seconds kHeedTokensEvery{1};

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
Result<Daemon::Asked> Daemon::identify(transport::Connection& connection,
                                       const protocol::Hello& hello, const Exporter& exporter,
                                       Deadline deadline) {
  const Result<protocol::Nonce> ours =
      exporter ? Result<protocol::Nonce>(*exporter) : protocol::random_array<protocol::Nonce>();
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
    const WipedKey key = key_of(live()->secret);
    if (!protocol::proved(*request, key, Sender::kClient, 0)) return no("the secret is wrong");
    return Asked{{}, key, std::move(request->payload)};
  }
  const User claimed{"", hex_of(bytes_of(*hello.token))};
  if (options_.tokens == nullptr) return no("this server knows no tokens of users");
  const Result<std::optional<TokenEntry>> entry = options_.tokens->find(*hello.token);
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
  options_.tokens->used(*hello.token);
  return Asked{{(*entry)->user, claimed.token}, key, std::move(request->payload)};
}

Status Daemon::check_still_valid(const User& user) {
  if (user.is_operator()) return {};
  const Result<protocol::TokenId> id = protocol::parse_token_id(user.token);
  if (!id.ok()) return id.status();
  const auto entry = options_.tokens->find(*id);
  if (!entry.ok()) return no("this server cannot read its tokens; its log has the reason");
  if (!*entry) return no("token " + user.token + " of user " + user.name + " was revoked");
  return check_valid(**entry);
}

// Applies an operator's changes in the file of tokens. Any thread except run()'s, because a disk
// may make it wait. When it returns, all changes that were made before the call are active,
// whichever thread has applied them.
void Daemon::heed_tokens() {
  if (options_.tokens == nullptr) return;
  const std::lock_guard lock(heed_mutex_);
  for (const TokenStore::Change& change : options_.tokens->changes()) {
    const std::string name = change.entry.name();
    spdlog::info("token {} of user {} {}", name, change.entry.user,
                 change.ended ? "is revoked" : "is new");
    audit(change.ended ? "token.revoked" : "token.made",
          {{"user", change.entry.user},
           {"token", name},
           {"by", change.ended ? change.entry.ended_by : change.entry.by},
           {"leases", !change.ended   ? ""
                      : change.spared ? "run-on"
                                      : "end"}});
    if (!change.ended || change.spared) continue;
    const std::string why = "token " + name + " of user " + change.entry.user + " was revoked";
    book_.close(name, why);
    users_.end(name, why);
  }
}

Status Daemon::watch_tokens() {
  if (options_.tokens == nullptr) return {};
  try {
    token_watch_ = std::thread([this] {
      std::unique_lock lock(mutex_);
      while (!token_watch_ends_) {
        lock.unlock();
        heed_tokens();
        options_.tokens->write_used_when_due();
        lock.lock();
        token_watch_told_.wait_for(lock, kHeedTokensEvery, [this] { return token_watch_ends_; });
      }
    });
  } catch (const std::system_error& error) {
    return Status(Code::kResourceExhausted,
                  std::string("no thread to watch the users' tokens: ") + error.what());
  }
  return {};
}

void Daemon::end_token_watch() {
  {
    const std::lock_guard lock(mutex_);
    token_watch_ends_ = true;
  }
  token_watch_told_.notify_all();
  if (token_watch_.joinable()) token_watch_.join();
}

void Daemon::audit(const char* event, std::initializer_list<AuditLog::Field> fields) {
  if (options_.audit != nullptr) options_.audit->write(event, fields);
}

void Daemon::audit_refusal(const char* event, std::initializer_list<AuditLog::Field> fields) {
  if (options_.audit != nullptr) options_.audit->write_refusal(event, fields);
}

}  // namespace gpurun::server
