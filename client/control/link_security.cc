// LinkSecurity: nothing is sent to a server before its identity is known.
#include "client/control/link_security.h"

#include <utility>

#include "client/control/known_servers.h"
#include "transport/tls/connection.h"

namespace gpurun::client {
namespace {

namespace tls = transport::tls;

// Returns the rule by which the key is accepted.
Result<KeyRule> check_key(const tls::Fingerprint& shown, const std::string& server,
                          const LinkSecurity& security) {
  if (security.fingerprint) {
    if (*security.fingerprint == shown) {
      return security.authorities_file.empty() ? KeyRule::kFingerprint
                                               : KeyRule::kAuthoritiesFingerprint;
    }
    return Status(Code::kRefused,
                  "the server " + server + " shows the key " + tls::to_string(shown) +
                      ", not the expected key " + tls::to_string(*security.fingerprint) +
                      ": it is another server, or a third party intercepts the link");
  }
  const std::string path =
      security.known_servers.empty() ? default_known_servers() : security.known_servers;
  if (path.empty()) {
    return Status(Code::kRefused,
                  "there is no folder to remember servers' keys in (HOME and XDG_CONFIG_HOME are "
                  "not set); name the server's key by --server-fingerprint " +
                      tls::to_string(shown) + ", if that is the one that its operator names");
  }
  const Result<Acquaintance> met = meet_server(path, server, shown);
  if (!met.ok()) return met.status();
  if (*met == Acquaintance::kNew && security.say) {
    security.say("met the server " + server + " for the first time; its key, " +
                 tls::to_string(shown) + ", is remembered in " + path);
  }
  return *met == Acquaintance::kNew ? KeyRule::kMetNow : KeyRule::kMetBefore;
}

// Returns whether the user, or the token, has named the server's key.
bool names_a_key(const LinkSecurity& security) {
  return security.fingerprint.has_value() || !security.authorities_file.empty();
}

// Returns the key that the user has pinned for `server` and not overridden by naming another.
Result<std::optional<PinnedKey>> pinned_for(const LinkSecurity& security,
                                            const std::string& server) {
  if (security.own_server || names_a_key(security)) return std::optional<PinnedKey>();
  const std::string path =
      security.known_servers.empty() ? default_known_servers() : security.known_servers;
  if (path.empty()) return std::optional<PinnedKey>();
  return pinned_key(path, server);
}

Status check_pinned(const tls::Fingerprint& shown, const std::string& server,
                    const PinnedKey& pinned) {
  if (pinned.key == shown) return {};
  return Status(Code::kRefused,
                "the server " + server +
                    " shows another key than it did before: " + tls::to_string(shown) + " now, " +
                    tls::to_string(pinned.key) + " in " + pinned.place +
                    ". Ask its operator for its fingerprint (gpurund --fingerprint "
                    "prints it); if it is the one that it shows now, remove that line and log in "
                    "again");
}

}  // namespace

Status check_link_security(const LinkSecurity& security) {
  if (!security.insecure_plaintext || !names_a_key(security)) return {};
  return Status(Code::kInvalidArgument,
                "the server's key is named (by --server-fingerprint, --tls-ca or the token), and a "
                "link that is not encrypted shows none; leave out --insecure-plaintext and "
                "GPURUN_INSECURE_PLAINTEXT");
}

Result<LinkDecision> decide_link(const LinkSecurity& security, const std::string& server,
                                 bool in_this_machine) {
  GPURUN_RETURN_IF_ERROR(check_link_security(security));
  Result<std::optional<PinnedKey>> pinned = pinned_for(security, server);
  if (!pinned.ok()) return pinned.status();
  if (pinned->has_value() && security.insecure_plaintext) {
    return Status(Code::kInvalidArgument,
                  "the key of the server " + server + " is pinned in " + (*pinned)->place +
                      ", and a link that is not encrypted shows none; leave out "
                      "--insecure-plaintext and GPURUN_INSECURE_PLAINTEXT, or remove that line");
  }
  LinkDecision decision;
  // An address of this machine may lead elsewhere (ssh -L), so a named key is checked.
  decision.tls = security.always_tls || names_a_key(security) || pinned->has_value() ||
                 !(in_this_machine || security.insecure_plaintext);
  decision.pinned = *std::move(pinned);
  return decision;
}

Status name_pin(const Status& failure, const LinkDecision& decision) {
  if (!decision.pinned || failure.code() == Code::kDeadline) return failure;
  return Status(failure.code(), failure.message() + "; " + decision.pinned->place +
                                    " pins its key: remove that line if another server, without "
                                    "TLS, has this address now");
}

Result<SecuredLink> secure_link(std::unique_ptr<transport::Connection> connection,
                                const std::string& host, const std::string& server,
                                const LinkSecurity& security, Deadline deadline) {
  const Result<LinkDecision> decision =
      decide_link(security, server, connection->capabilities().same_host);
  if (!decision.ok()) return decision.status();
  SecuredLink link;
  if (!decision->tls) {
    link.connection = std::move(connection);
    return link;
  }
  tls::ServerTrust trust;
  trust.authorities_file = security.authorities_file;
  trust.host = host;
  auto handshake = tls::Handshake::of_client(trust);
  if (!handshake.ok()) return handshake.status();
  Result<tls::Channel> channel = (*handshake)->finish(*connection, deadline);
  if (!channel.ok()) return name_pin(channel.status(), *decision);
  // Authorities and a given fingerprint may both be required. Without either, the first meeting
  // counts.
  link.key = {KeyRule::kAuthorities, *channel->peer};
  if (decision->pinned) {
    link.key.rule = KeyRule::kPinned;
    GPURUN_RETURN_IF_ERROR(check_pinned(*channel->peer, server, *decision->pinned));
  } else if (security.authorities_file.empty() || security.fingerprint) {
    const Result<KeyRule> rule = check_key(*channel->peer, server, security);
    if (!rule.ok()) return rule.status();
    link.key.rule = *rule;
  }
  link.exporter = channel->binding;
  tls::TlsOptions options;
  options.reads_ahead = false;  // The link's owner polls its descriptor.
  auto secured = tls::secure(std::move(connection), *std::move(channel), options);
  if (!secured.ok()) return secured.status();
  link.connection = *std::move(secured);
  return link;
}

}  // namespace gpurun::client
