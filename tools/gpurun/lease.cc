// Which server is asked for how long, and what its refusal means for the user.
#include "tools/gpurun/lease.h"

#include <utility>

#include "tools/gpurun/secret.h"

namespace gpurun::tools {
namespace {

constexpr std::chrono::seconds kConnectDeadline{10};

// `reached`: the server is one that could be waited for.
Result<HeldLease> ask(const std::string& server, const LeaseOrder& order,
                      std::chrono::milliseconds wait, bool* reached) {
  auto link = connect_to_server(server, order.credential, order.security);
  if (!link.ok()) return link.status();
  client::LeaseRequest request;
  request.devices = order.gpu_count;
  request.wait = wait;
  request.on_queued = [&](unsigned ahead) {
    order.say("waiting for a free GPU of " + server +
              (ahead > 0 ? ", behind " + std::to_string(ahead) + " others" : ""));
  };
  Result<client::SessionData> session = (*link)->request_lease(request);
  *reached = (*link)->server_is_known();
  if (!session.ok()) return advised(session.status(), server, order.credential);
  return HeldLease{*std::move(link), *std::move(session)};
}

// Why this user's secret may not be the server's, and what to say instead.
std::string secret_advice(const std::string& server, const Credential& named) {
  if (!named.file.empty()) {
    return "; it refused the secret of " + named.file +
           ", which --secret-file or GPURUN_SECRET_FILE names";
  }
  const std::string advice =
      "; name the file with your token by --token-file, or with the server's secret by "
      "--secret-file";
  const Result<Bytes> own = read_run_secret(server);
  if (own.ok() && own->empty()) return advice;
  return advice +
         (own.ok() ? " (it refused what a server of your own has left for " + server + ")"
                   : " (there is none of a server of your own: " + own.status().message() + ")");
}

// " (the token of FILE)", if it is one that was refused.
std::string token_origin(const std::string& server, const Credential& named) {
  if (!named.empty()) return named.token ? " (the token of " + named.file + ")" : "";
  const Result<Credential> found = found_credential(server);
  return found.ok() && found->token ? " (the token of " + found->file + ")" : "";
}

}  // namespace

Status advised(const Status& status, const std::string& server, const Credential& named) {
  std::string advice;
  switch (status.code()) {
    case Code::kUnavailable:
      if (status.message().find("cannot find host") != std::string::npos) {
        advice = "no server at " + server + ": " + status.message() + "; is the name right?";
        break;
      }
      advice = "no server at " + server + ": " + status.message() +
               "; is gpurund running there, and does a firewall let its port through?";
      break;
    case Code::kDeadline:
      advice =
          "server " + server +
          " does not answer in time; is it a gpurund, and does a firewall let its port through?";
      break;
    case Code::kPeerGone:
      advice = "server " + server + " hung up: " + status.message() +
               "; is it a gpurund? Then its log may say why";
      if (status.message().find("TLS handshake") != std::string::npos) {
        advice += ", or it is one that speaks no TLS";
      }
      break;
    case Code::kProtocol:
      if (status.message().find("does not speak TLS") != std::string::npos) {
        advice =
            "server " + server + ": " + status.message() + "; is it a gpurund of this version?";
        break;
      }
      advice = "server " + server + ": " + status.message() +
               "; is it a gpurund, and is this its secret (--secret-file)?";
      break;
    case Code::kRefused:
      advice = status.message();
      if (advice.find("the secret is wrong") != std::string::npos) {
        advice += secret_advice(server, named);
      } else if (advice.find(" token") != std::string::npos) {
        advice += token_origin(server, named);
      }
      break;
    default:
      return status;
  }
  return Status(status.code(), advice);
}

Result<std::unique_ptr<client::ControlLink>> connect_to_server(
    const std::string& server, const Credential& credential, const client::LinkSecurity& security) {
  // Where there is none, the server's refusal is explained by advised().
  const Result<Credential> shown =
      credential.empty() ? found_credential(server) : Result<Credential>(credential);
  if (!shown.ok()) return shown.status();
  client::LinkSecurity trusted = security;
  // A token that knows its server is for no other.
  if (shown->token && !trusted.fingerprint) trusted.fingerprint = shown->token->server;
  const Deadline deadline = Deadline::in(kConnectDeadline);
  auto link = shown->token ? client::ControlLink::connect_with_token(server, *shown->token,
                                                                     deadline, trusted)
                           : client::ControlLink::connect(server, shown->secret, deadline, trusted);
  if (!link.ok()) return advised(link.status(), server);
  return link;
}

Result<HeldLease> acquire_lease(const LeaseOrder& order) {
  const bool only_one = order.servers.size() == 1;
  const std::string* waited_for = nullptr;
  Status failure(Code::kInvalidArgument, "no server is named");
  std::string failures;
  for (const std::string& server : order.servers) {
    bool reached = false;
    Result<HeldLease> held =
        ask(server, order, only_one ? order.wait : std::chrono::milliseconds(0), &reached);
    if (held.ok() || only_one) return held;
    failure = held.status();
    failures += (failures.empty() ? "" : "; ") + failure.message();
    if (reached && waited_for == nullptr && failure.code() == Code::kRefused) waited_for = &server;
  }
  if (waited_for != nullptr && order.wait.count() > 0) {
    bool reached = false;
    return ask(*waited_for, order, order.wait, &reached);
  }
  return Status(failure.code(), failures);
}

}  // namespace gpurun::tools
