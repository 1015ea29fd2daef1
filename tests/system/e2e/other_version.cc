// other_version: a peer of gpurun or gpurund of another version, for version_test.py. It sends the
// messages that protocol/control/control.h documents, with the numbers in its arguments.
//   hello PROTOCOL ADDRESS    sends hello as such a gpurun and prints the answer.
//   hello-tls ...             the same inside TLS, with all that follows a hello there.
//   attach PROTOCOL ADDRESS   attaches as such a client library.
//   serve SECRET WAY [WORD]   prints its address and serves until its input ends.
//     challenge PROTOCOL      challenges as a server of that protocol.
//     refuse TEXT             refuses each hello with TEXT.
//     refuse-attach TEXT      leases a GPU, then refuses each process with TEXT.
//     require                 leases a GPU, then requires an unknown feature of each process.
//   serve-tls ...             the same inside TLS. Its second line is its key's fingerprint.
#include <poll.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "protocol/control/control.h"
#include "transport/tls/connection.h"
#include "transport/transport.h"

namespace gpurun {
namespace {

using protocol::Sender;
namespace tls = transport::tls;

constexpr const char* kOtherRelease = "7.7.7";

Deadline soon() { return Deadline::in(std::chrono::seconds(20)); }

void must(const Status& status, const char* what) {
  if (status.ok()) return;
  std::fprintf(stderr, "other_version: %s: %s\n", what, status.to_string().c_str());
  std::exit(1);
}

std::uint32_t number(const char* text) {
  return static_cast<std::uint32_t>(std::strtoul(text, nullptr, 10));
}

Result<protocol::ControlMessage> hear(transport::Connection& connection) {
  const auto frame = protocol::receive_control(connection, limits::kHelloBytesMax, soon());
  if (!frame.ok()) return frame.status();
  return protocol::decode(frame->payload);
}

using Secured = Result<std::unique_ptr<transport::Connection>>;
Secured secure(std::unique_ptr<transport::Connection> connection,
               Result<std::unique_ptr<tls::Handshake>> handshake) {
  if (!handshake.ok()) return handshake.status();
  Result<tls::Channel> channel = (*handshake)->finish(*connection, soon());
  if (!channel.ok()) return channel.status();
  tls::TlsOptions options;
  options.reads_ahead = false;  // The connection is polled.
  return tls::secure(std::move(connection), *std::move(channel), options);
}

int ask(const std::string& what, std::uint32_t version, const char* address) {
  auto connection = transport::connect(std::string("tcp://") + address, soon());
  must(connection.status(), "connect");
  const protocol::Version other{version, kOtherRelease, {}};
  protocol::Attach words;
  words.version = other;
  words.count = 2;
  if (what == "attach") {
    must(protocol::send_control(**connection, words, soon()), "send");
  } else {
    const bool in_tls = what == "hello-tls";
    if (in_tls) connection = secure(*std::move(connection), tls::Handshake::of_client({}));
    must(connection.status(), "TLS");
    must(protocol::send_control(**connection, protocol::Hello{other, {}}, soon()), "send");
    // Any messages of that version: other records that the server need not receive.
    for (int more = 0; in_tls && more < 2; ++more) {
      must(protocol::send_control(**connection, protocol::LeaseRequest{1, 0}, soon()), "send more");
    }
  }
  const auto answer = hear(**connection);
  must(answer.status(), "answer");
  if (const auto* refused = std::get_if<protocol::Refused>(&*answer)) {
    std::printf("refused: %s\n", refused->reason.c_str());
  } else {
    std::printf("message %zu\n", answer->index());
  }
  return 0;
}

class Server {
 public:
  Server(std::shared_ptr<const tls::Identity> identity, std::string secret, std::string way,
         std::string word)
      : identity_(std::move(identity)),
        secret_(std::move(secret)),
        way_(std::move(way)),
        word_(std::move(word)) {}

  int run() {
    auto listener = transport::listen("tcp://127.0.0.1:0");
    must(listener.status(), "listen");
    std::printf("%s\n", (*listener)->address().c_str());
    if (identity_) std::printf("%s\n", tls::to_string(identity_->fingerprint()).c_str());
    std::fflush(stdout);
    while (true) {
      std::vector<pollfd> waited = {{STDIN_FILENO, POLLIN, 0}, {(*listener)->fd(), POLLIN, 0}};
      for (const auto& connection : kept_) waited.push_back({connection->fd(), POLLIN, 0});
      if (poll(waited.data(), waited.size(), -1) < 0) continue;
      if (waited[0].revents != 0) return 0;
      // A kept connection has ended, or sent more than it was asked for. Both end it.
      for (std::size_t i = waited.size(); i-- > 2;) {
        if (waited[i].revents != 0) kept_.erase(kept_.begin() + static_cast<std::ptrdiff_t>(i - 2));
      }
      if (waited[1].revents == 0) continue;
      auto connection = (*listener)->accept(soon());
      if (connection.ok() && identity_) {
        connection = secure(*std::move(connection), tls::Handshake::of_server(identity_));
      }
      if (connection.ok() && greet(**connection)) kept_.push_back(*std::move(connection));
    }
  }

 private:
  // Returns whether the connection is kept.
  bool greet(transport::Connection& connection) {
    const auto message = hear(connection);
    if (!message.ok()) return false;
    if (const auto* attach = std::get_if<protocol::Attach>(&*message)) {
      return answer_attach(connection, *attach);
    }
    const auto* hello = std::get_if<protocol::Hello>(&*message);
    if (hello == nullptr) return false;
    if (way_ == "refuse") {
      static_cast<void>(protocol::send_control(connection, protocol::Refused{word_}, soon()));
      return false;
    }
    auto version = protocol::our_version(Sender::kServer);
    if (way_ == "challenge") version = {number(word_.c_str()), kOtherRelease, {}};
    const protocol::Challenge challenge{version, {}};
    if (!protocol::send_control(connection, challenge, soon()).ok()) return false;
    return way_ == "challenge" || lease(connection, *hello);
  }

  bool lease(transport::Connection& connection, const protocol::Hello& hello) {
    const ByteView secret = byte_view(secret_.data(), secret_.size());
    const protocol::Key key =
        protocol::link_key(secret, protocol::Link::kControl, {}, hello.nonce, {});
    if (!hear(connection).ok()) return false;  // The request, with any content.
    ticket_key_ = protocol::ticket_key(protocol::lease_key(key, {}), {});
    const protocol::Grant grant{{}, {}, {}, 1, {}};
    return protocol::send_control(connection, grant, key, Sender::kServer, 0, soon()).ok();
  }

  bool answer_attach(transport::Connection& connection, const protocol::Attach& attach) {
    if (attach.index != 0) return true;
    const protocol::Key key = protocol::link_key(bytes_of(ticket_key_), protocol::Link::kAttach, {},
                                                 attach.nonce, attach.session);
    if (way_ == "refuse-attach") {
      return protocol::send_control(connection, protocol::Refused{word_}, soon()).ok();
    }
    protocol::Accept accept;
    accept.release = kOtherRelease;
    accept.features = {std::uint64_t{1} << 63, std::uint64_t{1} << 63};
    return protocol::send_control(connection, accept, key, Sender::kServer, 0, soon()).ok();
  }

  const std::shared_ptr<const tls::Identity> identity_;  // Empty: no TLS.
  const std::string secret_, way_, word_;
  protocol::Key ticket_key_{};
  std::vector<std::unique_ptr<transport::Connection>> kept_;
};

}  // namespace
}  // namespace gpurun

int main(int argc, char** argv) {
  const std::string what = argc > 3 ? argv[1] : "";
  if ((what == "hello" || what == "hello-tls" || what == "attach") && argc == 4) {
    return gpurun::ask(what, gpurun::number(argv[2]), argv[3]);
  }
  if (what != "serve" && what != "serve-tls") return 2;
  std::shared_ptr<const gpurun::tls::Identity> identity;
  if (what == "serve-tls") {
    auto made = gpurun::tls::Identity::make("here");
    gpurun::must(made.status(), "certificate");
    identity = *std::move(made);
  }
  return gpurun::Server(identity, argv[2], argv[3], argc > 4 ? argv[4] : "").run();
}
