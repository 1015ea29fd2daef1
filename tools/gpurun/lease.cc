// Lease of one run: how long each server is asked, and the advice for a refusal.
#include "tools/gpurun/lease.h"

#include <chrono>
#include <optional>
#include <utility>

#include "tools/gpurun/lease_race.h"
#include "tools/gpurun/secret.h"
#include "tools/gpurun/slow_notice.h"

namespace gpurun::tools {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kConnectDeadline{10};
// Time between two equal messages that gpurun still waits.
constexpr std::chrono::minutes kRemindEvery{10};

// One server's answer to a request without a wait.
struct Answer {
  Result<HeldLease> held = Status();
  bool may_be_waited_for = false;  // It refused now, and may grant later.
};

Answer ask(const std::string& server, const LeaseOrder& order, std::chrono::milliseconds wait) {
  auto link = connect_to_server(server, order.credential, order.security, order.warn);
  if (!link.ok()) return {link.status()};
  Result<client::SessionData> session =
      (*link)->request_lease(lease_request(server, order, wait, order.say));
  if (session.ok()) return {HeldLease{*std::move(link), *std::move(session)}};
  const bool refused = session.status().code() == Code::kRefused;
  return {advised(session.status(), server, order.credential),
          refused && (*link)->server_is_known() && !(*link)->refused_for_good()};
}

std::string or_else(const std::string& text, const char* otherwise) {
  return text.empty() ? otherwise : text;
}

// Advice for a user without a credential: what the server wants, and where gpurun looks for it.
std::string wants_token(const std::string& server) {
  const std::string folder = or_else(config_folder(), "~/.config/gpurun");
  const std::string host = server.substr(0, server.rfind(':'));
  std::string advice = "server " + server + " wants a token, and none was found: not by " +
                       "--token-file or GPURUN_TOKEN_FILE, and no file " + folder + "/tokens/" +
                       server + ", " + folder + "/tokens/" + host + " or " + folder + "/token";
  const Result<Bytes> own = read_run_secret(server);
  if (!own.ok()) {
    advice += "; nor a secret of a gpurund of your own (" + own.status().message() +
              "), and --secret-file names none";
  }
  return advice + ". Ask its operator for a token (gpuctl token create), then: gpurun login " +
         server;
}

// Advice for a refused secret.
std::string secret_advice(const std::string& server, const Credential& named) {
  if (!named.file.empty()) {
    return "; it refused the secret of " + named.file +
           ", which --secret-file or GPURUN_SECRET_FILE names";
  }
  return "; name the file with your token by --token-file, or with the server's secret by "
         "--secret-file (it refused what a server of your own has left for " +
         server + ")";
}

bool shows_nothing(const std::string& server, const Credential& named) {
  if (!named.empty()) return false;
  const Result<Credential> found = found_credential(server);
  return found.ok() && found->empty();
}

// " (the token of FILE)", if a token was refused.
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
               "; is it a gpurund? Then its log has the reason";
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
        advice = shows_nothing(server, named) ? wants_token(server)
                                              : advice + secret_advice(server, named);
      } else if (advice.find(" token") != std::string::npos) {
        advice += token_origin(server, named);
      }
      break;
    default:
      return status;
  }
  return Status(status.code(), advice);
}

Result<Credential> shown_credential(const std::string& server, const Credential& named) {
  return named.empty() ? found_credential(server) : Result<Credential>(named);
}

client::LinkSecurity security_for(const Credential& shown, const client::LinkSecurity& security) {
  client::LinkSecurity trusted = security;
  if (shown.token && !trusted.fingerprint) trusted.fingerprint = shown.token->server;
  return trusted;
}

Result<std::unique_ptr<client::ControlLink>> connect_to_server(
    const std::string& server, const Credential& credential, const client::LinkSecurity& security,
    const std::function<void(const std::string&)>& say_slow) {
  // Without a credential, advised() explains the server's refusal.
  const Result<Credential> shown = shown_credential(server, credential);
  if (!shown.ok()) return shown.status();
  const client::LinkSecurity trusted = security_for(*shown, security);
  const Deadline deadline = Deadline::in(kConnectDeadline);
  const SlowNotice notice(say_slow, "still connecting to " + server);
  auto link = shown->token ? client::ControlLink::connect_with_token(server, *shown->token,
                                                                     deadline, trusted)
                           : client::ControlLink::connect(server, shown->secret, deadline, trusted);
  if (!link.ok()) return advised(link.status(), server);
  return link;
}

Result<unsigned> count_gpus(const std::string& server, const Credential& credential,
                            const client::LinkSecurity& security) {
  auto link = connect_to_server(server, credential, security, security.say);
  if (!link.ok()) return link.status();
  const Result<protocol::Listing> listing = (*link)->list();
  if (!listing.ok()) return advised(listing.status(), server, credential);
  return static_cast<unsigned>(listing->gpus.size());
}

std::string describe_wait(const std::string& server, unsigned gpus, const protocol::Queued& place) {
  std::string text = gpus == 1 ? "a free GPU" : std::to_string(gpus) + " free GPUs";
  text += " of " + server;
  if (place.ahead > 0) {
    text += ", behind " + std::to_string(place.ahead) + (place.ahead == 1 ? " other" : " others");
  }
  if (place.lacking == 0 || place.gpus == 0) return text;
  if (place.gpus == 1) return text + ": its GPU is leased";
  return text + ": " + std::to_string(place.lacking) + " more of its " +
         std::to_string(place.gpus) + " GPUs must come free";
}

client::LeaseRequest lease_request(const std::string& server, const LeaseOrder& order,
                                   std::chrono::milliseconds wait,
                                   const std::function<void(const std::string&)>& say) {
  client::LeaseRequest request;
  request.devices = order.gpu_count;
  request.wait = wait;
  request.program = order.program;
  request.remind_every = kRemindEvery;
  request.on_queued = [=, on_terminal = order.on_terminal, gpus = order.gpu_count,
                       last = std::optional<Clock::time_point>()](const protocol::Queued& place,
                                                                  bool) mutable {
    const bool first = !last;
    const auto now = Clock::now();
    // A batch job's log does not need each place.
    if (!first && !on_terminal && now - *last < kRemindEvery) return;
    last = now;
    say((first ? "waiting for " : "still waiting for ") + describe_wait(server, gpus, place));
  };
  return request;
}

Result<HeldLease> acquire_lease(const LeaseOrder& order) {
  if (order.servers.empty()) return Status(Code::kInvalidArgument, "no server is named");
  if (order.servers.size() == 1) return ask(order.servers[0], order, order.wait).held;
  std::vector<std::string> busy, skipped;
  Status failure;
  std::string failures;
  const auto say_skipped = [&] {
    for (const std::string& why : skipped) order.warn("skipped: " + why);
  };
  for (const std::string& server : order.servers) {
    Answer answer = ask(server, order, std::chrono::milliseconds(0));
    if (answer.held.ok()) {
      say_skipped();
      return std::move(answer.held);
    }
    failure = answer.held.status();
    failures += (failures.empty() ? "" : "; ") + failure.message();
    if (answer.may_be_waited_for) {
      busy.push_back(server);
    } else {
      skipped.push_back(failure.message());
    }
  }
  if (busy.empty() || order.wait.count() == 0) return Status(failure.code(), failures);
  say_skipped();
  LeaseOrder waiting = order;
  waiting.servers = std::move(busy);
  return wait_at_all(waiting);
}

}  // namespace gpurun::tools
