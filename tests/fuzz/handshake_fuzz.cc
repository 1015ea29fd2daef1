// Handshake: a gpurund against untrusted clients. They send any bytes, any message with a valid
// proof, any attach to a lease that they hold, and any proof of a user's token. Afterwards the
// daemon must still accept clients.
#include <sys/socket.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "client/control/control_link.h"
#include "server/daemon/daemon.h"
#include "tests/fuzz/fuzz_target.h"

namespace gpurun::server {
namespace {

using protocol::Sender;

// On a busy machine a daemon's thread may wait this long for its turn.
constexpr std::chrono::seconds kLong{60};
Deadline soon() { return Deadline::in(kLong); }
Bytes secret() { return Bytes(16, std::byte{0x5a}); }

// No session gets beyond this point.
class NoWorkers final : public WorkerSpawner {
 public:
  Result<std::unique_ptr<Worker>> start(WorkerOrder& order) override {
    GPURUN_FUZZ_CHECK(order.connections.size() >= 2);
    GPURUN_FUZZ_CHECK(order.connections.size() <= protocol::kConnectionsMax);
    return Status(Code::kUnavailable, "there are no workers here");
  }
};

// Lives as long as the process, and ends before the objects that the daemon's threads use.
struct Door {
  Door() {
    auto listener = transport::listen("tcp://127.0.0.1:0");
    GPURUN_FUZZ_CHECK(listener.ok());
    DaemonOptions options;
    options.secret = secret();
    options.devices = 2;
    options.handshake_deadline = kLong;
    GPURUN_FUZZ_CHECK(mkdtemp(folder.data()) != nullptr);
    const std::string tokens = folder + "/tokens";
    protocol::TokenEntry entry;
    entry.user = "anna";
    entry.check = protocol::token_check(token.secret);
    GPURUN_FUZZ_CHECK(protocol::update_token_file(tokens, [&](auto* entries) {
                        entries->push_back(entry);
                        return Status();
                      }).ok());
    options.tokens = std::make_shared<TokenStore>(tokens);
    daemon = *Daemon::create(*std::move(listener), std::move(options), spawner);
    thread = std::thread([this] { static_cast<void>(daemon->run()); });
    link = *client::ControlLink::connect(daemon->address(), secret(), soon());
    client::LeaseRequest request;
    request.devices = 1;
    session = *link->request_lease(request);
  }
  ~Door() {
    link.reset();
    daemon->stop();
    thread.join();
    daemon.reset();  // The daemon writes what it still holds.
    std::filesystem::remove_all(folder);
  }
  NoWorkers spawner;
  std::string folder = "/tmp/gpurun-fuzz-XXXXXX";
  protocol::Token token{{}, protocol::Key{9}, {}};
  std::unique_ptr<Daemon> daemon;
  std::thread thread;
  std::unique_ptr<client::ControlLink> link;
  client::SessionData session;
};

Door& door() {
  static Door one;
  return one;
}

void send(transport::Connection& to, ByteView bytes) {
  static_cast<void>(to.send({&bytes, 1}, soon()));
}

// Reads until the daemon hangs up. All that it sends is well formed.
void hear_out(transport::Connection& from) {
  for (;;) {
    const auto frame = protocol::receive_control(from, limits::kFrameBytesMax, soon());
    if (!frame.ok()) {
      GPURUN_FUZZ_CHECK(frame.status().code() != Code::kDeadline);
      return;
    }
    GPURUN_FUZZ_CHECK(protocol::decode(frame->payload).ok());
  }
}

// A client that knows the secret, and then sends any payload.
void proved_client(transport::Connection& to, ByteView payload) {
  const protocol::Hello hello{protocol::our_version(Sender::kClient), {}};
  static_cast<void>(protocol::send_control(to, hello, soon()));
  const auto frame = protocol::receive_control(to, limits::kHelloBytesMax, soon());
  GPURUN_FUZZ_CHECK(frame.ok());
  const auto message = protocol::decode(frame->payload);
  GPURUN_FUZZ_CHECK(message.ok() && std::holds_alternative<protocol::Challenge>(*message));
  const protocol::Key key =
      protocol::link_key(secret(), protocol::Link::kControl,
                         std::get<protocol::Challenge>(*message).nonce, hello.nonce, {});
  send(to, protocol::control_frame(payload, protocol::frame_tag(key, Sender::kClient, 0, payload)));
}

// A client that names a token, and then sends a valid proof or any other.
void token_holder(transport::Connection& to, fuzz::Input& input) {
  protocol::Token token = door().token;
  const auto kind = input.number<std::uint8_t>();
  token.id[0] = kind & 1u;  // A known one or not.
  const protocol::Hello hello{protocol::our_version(Sender::kClient), {}, token.id};
  static_cast<void>(protocol::send_control(to, hello, soon()));
  const auto frame = protocol::receive_control(to, limits::kHelloBytesMax, soon());
  GPURUN_FUZZ_CHECK(frame.ok());
  const auto message = protocol::decode(frame->payload);
  GPURUN_FUZZ_CHECK(message.ok() && std::holds_alternative<protocol::Challenge>(*message));
  const protocol::Nonce& nonce = std::get<protocol::Challenge>(*message).nonce;
  protocol::TokenProof proof{protocol::mask_token(token.secret, nonce, hello.nonce, token.id)};
  Bytes said = protocol::encode(proof);
  if ((kind & 2u) != 0) {
    for (std::byte& byte : said) byte ^= static_cast<std::byte>(input.number<std::uint8_t>());
  }
  send(to, protocol::control_frame(said, std::nullopt));
  const ByteView payload = input.rest();
  if (payload.empty() || payload.size() > limits::kHelloBytesMax) return;
  const protocol::Key key =
      protocol::link_key(bytes_of(token.secret), protocol::Link::kControl, nonce, hello.nonce, {});
  send(to, protocol::control_frame(payload, protocol::frame_tag(key, Sender::kClient, 0, payload)));
}

// A client with a ticket, and any attach.
void ticket_holder(transport::Connection& to, fuzz::Input& input) {
  const client::SessionData& session = door().session;
  protocol::Attach attach;
  attach.version.protocol = protocol::kVersion + input.number<std::uint8_t>() / 250;
  attach.version.features = {input.number<std::uint8_t>(), input.number<std::uint8_t>() & 1u};
  attach.lease = session.lease;
  attach.ticket = session.ticket;
  attach.session.fill(input.number<std::uint8_t>());
  attach.session[0] = input.number<std::uint8_t>();
  attach.nonce.fill(input.number<std::uint8_t>());
  attach.count = input.number<std::uint8_t>();
  attach.index = input.number<std::uint8_t>();
  const protocol::Key key =
      protocol::link_key(bytes_of(session.ticket_key), protocol::Link::kAttach, session.challenge,
                         attach.nonce, attach.session);
  static_cast<void>(protocol::send_control(to, attach, key, Sender::kClient, attach.index, soon()));
}

}  // namespace
}  // namespace gpurun::server

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace gpurun;
  using namespace gpurun::server;
  fuzz::Input input(data, size);
  const std::uint8_t which = input.number<std::uint8_t>();
  auto connection = transport::connect("tcp://" + door().daemon->address(), soon());
  GPURUN_FUZZ_CHECK(connection.ok());
  switch (which % 4) {
    case 0:
      send(**connection, input.rest());
      break;
    case 1:
      if (input.rest().empty() || input.rest().size() > limits::kHelloBytesMax) return 0;
      proved_client(**connection, input.rest());
      break;
    case 2:
      ticket_holder(**connection, input);
      break;
    default:
      token_holder(**connection, input);
  }
  // No more bytes will come. Without it the daemon would wait for the rest of a frame.
  ::shutdown((*connection)->fd(), SHUT_WR);
  // A session that is gathering its connections is kept until its deadline.
  if (which % 4 != 2) hear_out(**connection);
  return 0;
}
