// delayed_link: a TCP relay to a port of this machine. It holds each byte for half of a round trip
// in either direction, and limits the bandwidth. It adds no other delay to the traffic.
// `DelayedLink` of wire.py starts it.
//
// usage: delayed_link PORT ROUND_TRIP_US BYTES_PER_S SEED LOG OWN_BYTES_PER_S
//   BYTES_PER_S   of all connections together, in either direction. 0: no bound.
//   SEED          other than 0: pieces of random sizes are held up to three times as long, for
//                 each connection by itself, so that one connection overtakes another.
//   LOG           a file for the log, or "": one line of JSON for each connection and each
//                 piece, with times of CLOCK_MONOTONIC in nanoseconds (tests/bench/chain.py).
//   OWN_BYTES_PER_S   of each connection, in either direction, as on a network that shapes each
//                     flow or loses packets. 0: no bound.
// Prints its own address, relays until its standard input ends, and then writes the log.
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/late_queue.h"

namespace gpurun::world {
namespace {

using std::chrono::nanoseconds;

constexpr std::array<std::size_t, 4> kOddSizes = {40, 1500, 1 << 16, kPieceBytes};
constexpr std::size_t kEventsMax = std::size_t{1} << 18;
constexpr nanoseconds kStampAgeMax = std::chrono::seconds(1);  // Older: the clock was set.

// The log of connections and pieces, for counting round trips. Any thread may call add().
class Log {
 public:
  void add(int connection, const char* what, Clock::time_point came, Clock::time_point went,
           std::size_t bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (events_.size() < kEventsMax) events_.push_back({connection, what, came, went, bytes});
  }
  void write(const char* path) {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::FILE* file = std::fopen(path, "w");
    if (file == nullptr) return std::perror(path);
    const auto number = [](Clock::time_point at) {
      return static_cast<long long>(nanoseconds(at.time_since_epoch()).count());
    };
    for (const Event& event : events_) {
      std::fprintf(file,
                   "{\"connection\": %d, \"what\": \"%s\", \"came\": %lld, \"went\": %lld, "
                   "\"bytes\": %zu}\n",
                   event.connection, event.what, number(event.came), number(event.went),
                   event.bytes);
    }
    std::fclose(file);
  }

 private:
  struct Event {
    int connection;
    const char* what;  // "open", "up" (from the client), "down".
    Clock::time_point came, went;
    std::size_t bytes;
  };
  std::mutex mutex_;
  std::vector<Event> events_;
};

struct Link {
  sockaddr_in target{};
  nanoseconds delay{0};  // One way.
  unsigned seed = 0;
  bool logged = false;
  std::unique_ptr<SlowWire> up, down;  // Null: no bound.
  double own_bytes_per_s = 0;          // Of each connection. 0: no bound.
  Log log;
};

int fail(const char* what) {
  std::perror(what);
  return 1;
}

void prepare(int socket) {
  const int on = 1;
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  // Also of a listener: connections inherit this, so that bytes from before accept() get a stamp.
  setsockopt(socket, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on);
}

bool send_all(int socket, const char* data, std::size_t size) {
  while (size > 0) {
    const ssize_t sent = send(socket, data, size, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    data += sent;
    size -= static_cast<std::size_t>(sent);
  }
  return true;
}

// The time at which the kernel received a message. The reading thread may have woken later.
Clock::time_point came_at(msghdr& message) {
  // The wall clock is read first. Time between the two readings makes the result later, never
  // earlier than the truth.
  timespec wall{};
  clock_gettime(CLOCK_REALTIME, &wall);
  const Clock::time_point now = Clock::now();
  for (cmsghdr* about = CMSG_FIRSTHDR(&message); about != nullptr;
       about = CMSG_NXTHDR(&message, about)) {
    if (about->cmsg_level != SOL_SOCKET || about->cmsg_type != SCM_TIMESTAMPNS) continue;
    timespec stamp{};
    std::memcpy(&stamp, CMSG_DATA(about), sizeof stamp);
    const nanoseconds ago = std::chrono::seconds(wall.tv_sec - stamp.tv_sec) +
                            nanoseconds(wall.tv_nsec - stamp.tv_nsec);
    if (ago.count() >= 0 && ago < kStampAgeMax) return now - ago;
  }
  return now;
}

// Returns 0 bytes when nothing more comes.
std::size_t receive(int socket, char* data, std::size_t most, Clock::time_point* came) {
  iovec part{data, most};
  alignas(cmsghdr) std::array<char, 256> about;
  while (true) {
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = about.data();
    message.msg_controllen = about.size();
    const ssize_t got = recvmsg(socket, &message, 0);
    if (got < 0 && errno == EINTR) continue;
    *came = got > 0 ? came_at(message) : Clock::now();
    return got > 0 ? static_cast<std::size_t>(got) : 0;
  }
}

// One direction of a connection: reads at once, and writes each piece when its time has come.
// Nothing can be sent before `spoken`, and nothing passes before the server's side is `reached`.
// All set-up is done by then, because the link must not show its cost.
void relay(Link& link, int connection, int source, int sink, bool up, Clock::time_point spoken,
           const std::shared_future<bool>& reached) {
  const char* what = up ? "up" : "down";
  std::mt19937 chance(link.seed + 2 * static_cast<unsigned>(connection) + (up ? 1 : 0));
  SlowWire* wire = up ? link.up.get() : link.down.get();
  std::optional<SlowWire> own;
  if (link.own_bytes_per_s > 0) own.emplace(link.own_bytes_per_s);
  const bool slow = wire != nullptr || own.has_value();
  LateQueue queue;
  const auto deliver = [&link, connection, sink, what, &reached](const LateQueue::Piece& piece) {
    if (!reached.get()) return false;
    if (piece.size == 0) return shutdown(sink, SHUT_WR) == 0;
    // Before the send, because the receiver may answer and end before this thread continues.
    if (link.logged) link.log.add(connection, what, piece.came, Clock::now(), piece.size);
    return send_all(sink, piece.bytes.get(), piece.size);
  };
  const bool direct = link.delay.count() == 0 && !slow;
  std::thread writer;
  if (!direct) writer = std::thread([&queue, &deliver] { queue.pass_on(deliver); });
  std::uniform_real_distribution<double> longer(1, 3);
  // Bytes that could not have been sent yet are on no wire.
  if (slow) std::this_thread::sleep_until(spoken);
  for (bool last = false, broken = false; !last;) {
    LateQueue::Piece piece{queue.buffer(), 0, {}, {}};
    std::size_t most = link.seed != 0 ? kOddSizes[chance() % kOddSizes.size()] : kPieceBytes;
    if (slow) most = std::min(most, SlowWire::kTurnBytes);
    if (!up && !reached.get()) most = 0;
    if (most > 0) piece.size = receive(source, piece.bytes.get(), most, &piece.came);
    piece.came = std::max(piece.came, spoken);
    last = piece.size == 0;
    if (direct) {
      broken = broken || !deliver(piece);
      queue.give_back(std::move(piece.bytes));
      continue;
    }
    if (own) own->carry(piece.size);
    if (wire != nullptr) wire->carry(piece.size);
    const double factor = link.seed != 0 ? longer(chance) : 1;
    piece.due = (slow ? Clock::now() : piece.came) +
                std::chrono::duration_cast<nanoseconds>(link.delay * factor);
    queue.add(std::move(piece));
  }
  if (writer.joinable()) writer.join();
}

// As on a real link. After a round trip the client knows that it is connected, and may send. The
// server accepts when the client's last packet of the handshake has come, half a round trip later.
// Here the client is connected at once, and its bytes wait.
void serve(Link& link, int connection, int near) {
  const Clock::time_point accepted = Clock::now();
  if (link.logged) link.log.add(connection, "open", accepted, accepted, 0);
  prepare(near);
  const int far = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  prepare(far);
  std::promise<bool> reaching;
  const std::shared_future<bool> reached(reaching.get_future());
  std::thread answers([&link, connection, far, near, accepted, &reached] {
    relay(link, connection, far, near, false, accepted + 3 * link.delay, reached);
  });
  std::thread words([&link, connection, far, near, accepted, &reached] {
    relay(link, connection, near, far, true, accepted + 2 * link.delay, reached);
  });
  if (link.delay.count() > 0) wait_until(accepted + 3 * link.delay);
  const bool connected =
      connect(far, reinterpret_cast<const sockaddr*>(&link.target), sizeof link.target) == 0;
  if (!connected) shutdown(near, SHUT_RDWR);
  reaching.set_value(connected);
  answers.join();
  words.join();
  if (far >= 0) close(far);
  close(near);
}

int run(Link& link, const char* log) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  prepare(listener);
  sockaddr_in own{};
  own.sin_family = AF_INET;
  own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof own;
  if (listener < 0 || bind(listener, reinterpret_cast<sockaddr*>(&own), length) != 0 ||
      listen(listener, SOMAXCONN) != 0 ||
      getsockname(listener, reinterpret_cast<sockaddr*>(&own), &length) != 0) {
    return fail("delayed_link");
  }
  std::printf("127.0.0.1:%d\n", ntohs(own.sin_port));
  std::fflush(stdout);
  std::thread([&link, listener] {
    prctl(PR_SET_TIMERSLACK, 1);  // Also of the threads that it starts.
    for (int connection = 0;; ++connection) {
      const int near = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
      if (near < 0) return;
      std::thread([&link, connection, near] { serve(link, connection, near); }).detach();
    }
  }).detach();
  char word = 0;
  while (read(STDIN_FILENO, &word, 1) > 0) {
  }
  if (link.logged) link.log.write(log);
  std::fflush(nullptr);
  _exit(0);  // Ends without joining the threads.
}

}  // namespace
}  // namespace gpurun::world

int main(int count, char** arguments) {
  using namespace gpurun::world;
  if (count != 7) {
    std::fprintf(stderr,
                 "usage: delayed_link PORT ROUND_TRIP_US BYTES_PER_S SEED LOG "
                 "OWN_BYTES_PER_S\n");
    return 2;
  }
  prctl(PR_SET_TIMERSLACK, 1);
  static Link link;  // Lives as long as its threads.
  link.target.sin_family = AF_INET;
  link.target.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  link.target.sin_port = htons(static_cast<std::uint16_t>(std::atoi(arguments[1])));
  link.delay = std::chrono::nanoseconds(std::atoll(arguments[2]) * 1000 / 2);
  const double bytes_per_s = std::atof(arguments[3]);
  if (bytes_per_s > 0) {
    link.up = std::make_unique<SlowWire>(bytes_per_s);
    link.down = std::make_unique<SlowWire>(bytes_per_s);
  }
  link.own_bytes_per_s = std::atof(arguments[6]);
  link.seed = static_cast<unsigned>(std::atoi(arguments[4]));
  link.logged = arguments[5][0] != '\0';
  return run(link, arguments[5]);
}
