// Nothing is said to a server before it is known who it is.
#include "client/link_security.h"

#include <utility>

#include "client/known_servers.h"
#include "transport/tls/connection.h"

namespace gpurun::client {
namespace {

namespace tls = transport::tls;

Status check_key(const tls::Fingerprint& shown, const std::string& server,
                 const LinkSecurity& security) {
  if (security.fingerprint) {
    if (*security.fingerprint == shown) return {};
    return Status(Code::kRefused, "the server " + server + " shows the key " +
                                      tls::to_string(shown) + ", not the one that was told, " +
                                      tls::to_string(*security.fingerprint) +
                                      ": it is another server, or somebody stands in between");
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
  return {};
}

// Whether the user, or the token, has named what the server's key must be.
bool names_a_key(const LinkSecurity& security) {
  return security.fingerprint.has_value() || !security.authorities_file.empty();
}

}  // namespace

Status check_link_security(const LinkSecurity& security) {
  if (!security.insecure_plaintext || !names_a_key(security)) return {};
  return Status(Code::kInvalidArgument,
                "the server's key is named (by --server-fingerprint, --tls-ca or the token), and a "
                "link that is not encrypted shows none; leave out --insecure-plaintext and "
                "GPURUN_INSECURE_PLAINTEXT");
}

Result<SecuredLink> secure_link(std::unique_ptr<transport::Connection> connection,
                                const std::string& host, const std::string& server,
                                const LinkSecurity& security, Deadline deadline) {
  GPURUN_RETURN_IF_ERROR(check_link_security(security));
  SecuredLink link;
  // An address of this machine may lead elsewhere (ssh -L): a key that is named is checked.
  const bool tls_wanted = security.always_tls || names_a_key(security);
  const bool in_this_machine = connection->capabilities().same_host;
  if (!tls_wanted && (in_this_machine || security.insecure_plaintext)) {
    link.connection = std::move(connection);
    return link;
  }
  tls::ServerTrust trust;
  trust.authorities_file = security.authorities_file;
  trust.host = host;
  auto handshake = tls::Handshake::of_client(trust);
  if (!handshake.ok()) return handshake.status();
  Result<tls::Channel> channel = (*handshake)->finish(*connection, deadline);
  if (!channel.ok()) return channel.status();
  // Authorities and a told fingerprint may both be wanted; without either the first meeting counts.
  if (security.authorities_file.empty() || security.fingerprint) {
    GPURUN_RETURN_IF_ERROR(check_key(*channel->peer, server, security));
  }
  link.exporter = channel->binding;
  tls::TlsOptions options;
  options.reads_ahead = false;  // Who holds the link polls its descriptor.
  auto secured = tls::secure(std::move(connection), *std::move(channel), options);
  if (!secured.ok()) return secured.status();
  link.connection = *std::move(secured);
  return link;
}

}  // namespace gpurun::client
