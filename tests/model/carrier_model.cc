// Carrier model: a carried connection that changes, under the model. No byte is lost or comes
// twice, no two threads wait for each other, and the rings are read and written in order.
#include <array>
#include <iterator>

#include "tests/model/carrier_ends.h"

namespace gpurun::model {
namespace {

using transport::carrier::CarriedConnection;

constexpr std::size_t kNever = ~std::size_t{0};
constexpr std::size_t kSent = 20;

struct Failures {
  std::size_t puts = kNever;
  std::size_t takes = kNever;
};

struct Pair {
  explicit Pair(const Failures& client = {}, const Failures& server = {}) {
    const Failures* const fails[] = {&client, &server};
    for (int end = 0; end < 2; ++end) {
      auto socket = std::make_unique<ModelSocket>(pipes[end], pipes[1 - end]);
      sockets[end] = socket.get();
      transport::carrier::CarrierOptions options;
      options.may_change = true;
      ends[end] = transport::carrier::carry(
          std::move(socket),
          std::make_unique<ModelCarrier>(memory, end, fails[end]->puts, fails[end]->takes), {},
          options);
    }
  }

  // An end may still want to send a record that no thread will read.
  ~Pair() {
    for (const auto& end : ends) end->shut_down();
  }

  RingMemory memory;
  Pipe pipes[2];  // To each end.
  ModelSocket* sockets[2] = {};
  std::unique_ptr<CarriedConnection> ends[2];
  bool received[2] = {};  // Hidden from the model.
};

std::byte value(std::size_t index, int from) {
  return static_cast<std::byte>(index * 7 + 1 + static_cast<std::size_t>(from) * 100);
}

void send(Pair& pair, int end, std::size_t count) {
  Bytes bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = value(i, end);
  const ByteView part(bytes);
  check(pair.ends[end]->send({&part, 1}, Deadline::never()).ok(), "a send fails");
}

void receive_all(Pair& pair, int end, std::size_t count) {
  CarriedConnection& connection = *pair.ends[end];
  std::array<std::byte, 5> piece;
  for (std::size_t got = 0; got < count;) {
    const std::size_t most = std::min(piece.size(), count - got);
    const auto came = connection.receive(MutableBytes(piece).first(most), 1, Deadline::never());
    check(came.ok(), "a receive fails");
    for (std::size_t i = 0; i < *came; ++i) {
      check(piece[i] == value(got + i, 1 - end), "a byte is lost, or comes twice");
    }
    got += *came;
  }
}

// Until the other end has received its own bytes, too. So both ends receive as long as either
// changes.
void attend(Pair& pair, int end) {
  CarriedConnection& connection = *pair.ends[end];
  const auto other = [&pair, end] { return pair.received[1 - end]; };
  {
    const Quiet quiet;
    pair.received[end] = true;
  }
  for (;;) {
    {
      const Quiet quiet;
      const ModelSocket& socket = *pair.sockets[end];
      const auto ready = [&] {
        return socket.has_bytes() || (connection.wants_room() && socket.has_room());
      };
      until([&] { return other() || ready(); }, "the other end");
      if (other()) return;
    }
    check(connection.attend().ok(), "an end does not attend");
    if (connection.wants_room()) rest(1);  // A thread that has the turn goes on.
  }
}

void receive(Pair& pair, int end, std::size_t count) {
  receive_all(pair, end, count);
  attend(pair, end);
}

// Each end sends and receives, and `asks` runs beside them.
template <typename Asks>
void run(Pair& pair, std::size_t from_server, Asks asks) {
  exploring(true);
  const int threads[] = {spawn("sends", [&] { send(pair, 0, kSent); }),
                         spawn("receives", [&] { receive(pair, 1, kSent); }),
                         spawn("hears", [&] { receive(pair, 0, from_server); })};
  send(pair, 1, from_server);
  asks();
  for (const int thread : threads) join(thread);
  exploring(false);
}

void leaving() {
  Pair pair;
  run(pair, 1, [&] { check(pair.ends[choose(2)]->leave().ok(), "an end cannot ask"); });
}

// The other end sends nothing before it has all bytes, so only the thread that hears can send what
// the sender has left.
void answering() {
  Pair pair;
  exploring(true);
  const int threads[] = {
      spawn("sends", [&] { send(pair, 0, kSent); }), spawn("hears", [&] { receive(pair, 0, 1); }),
      spawn("asks", [&] { check(pair.ends[choose(2)]->leave().ok(), "an end cannot ask"); })};
  receive_all(pair, 1, kSent);
  send(pair, 1, 1);
  attend(pair, 1);
  for (const int thread : threads) join(thread);
  exploring(false);
}

void entering() {
  Pair pair;
  run(pair, 1, [&] {
    check(pair.ends[0]->leave().ok(), "an end cannot ask");
    check(pair.ends[choose(2)]->enter().ok(), "an end cannot ask");
  });
}

void both_leave() {
  Pair pair;
  run(pair, kSent, [&] {
    check(pair.ends[0]->leave().ok(), "an end cannot ask");
    check(pair.ends[1]->leave().ok(), "an end cannot ask");
  });
}

void failing() {
  constexpr std::size_t kBehind[] = {0, 5, 11};
  Failures client, server;
  const std::size_t behind = kBehind[choose(3)];
  (choose(2) == 0 ? client.puts : server.takes) = behind;
  Pair pair(client, server);
  run(pair, 1, [] {});
}

constexpr Scenario kScenarios[] = {{"leaving", leaving},
                                   {"answering", answering},
                                   {"entering", entering},
                                   {"both_leave", both_leave},
                                   {"failing", failing}};

}  // namespace
}  // namespace gpurun::model

int main(int argc, char** argv) {
  using gpurun::model::kScenarios;
  return gpurun::model::explore(argc, argv, kScenarios, std::size(kScenarios), 400);
}
