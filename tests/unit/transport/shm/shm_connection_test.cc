// Shared memory transport, beyond the common promises: offers are checked as far as possible. A
// peer may lie in the ring or die. No end makes a system call for a reader that is awake.
#include "transport/shm/connection.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <array>
#include <cstring>
#include <fstream>
#include <functional>
#include <future>
#include <string>
#include <thread>

#include "base/descriptor_message.h"
#include "transport/transport.h"

namespace gpurun::transport::shm {
namespace {

constexpr std::chrono::seconds kTimeout{10};

Deadline soon() { return Deadline::in(kTimeout); }

// Both ends of a local socket.
struct Sockets {
  explicit Sockets(const Options& options = {}) {
    static int made = 0;
    const std::string url =
        "unix:gpurun-shm-test-" + std::to_string(getpid()) + "-" + std::to_string(made++);
    auto listener = listen(url);
    EXPECT_TRUE(listener.ok()) << listener.status().to_string();
    auto connected = connect(url, soon(), options);
    auto accepted = (*listener)->accept(soon());
    EXPECT_TRUE(connected.ok() && accepted.ok());
    offerer = *std::move(connected);
    taker = *std::move(accepted);
  }
  std::unique_ptr<Connection> offerer;
  std::unique_ptr<Connection> taker;
};

// The offerer keeps its bare socket and memory, so it can lie.
struct Liar : Sockets {
  Liar() {
    std::string why_none;
    auto offered = offer(*offerer, kRingBytesMin, soon(), &why_none);
    EXPECT_TRUE(offered.ok() && offered->is_there()) << why_none;
    memory = *std::move(offered);
    const Status shared = share_offered(taker, soon());
    EXPECT_TRUE(shared.ok()) << shared.to_string();
  }
  SharedMemory memory;
};

// Both ends share memory.
struct Shared : Sockets {
  explicit Shared(std::size_t ring_bytes = kRingBytesMin) {
    std::string why_none;
    auto offered = offer(*offerer, ring_bytes, soon(), &why_none);
    EXPECT_TRUE(offered.ok() && offered->is_there()) << why_none;
    offerer = *share(std::move(offerer), *std::move(offered), Side::kOffered);
    EXPECT_TRUE(share_offered(taker, soon()).ok());
  }
};

Status send_bytes(Connection& connection, std::size_t bytes, Deadline deadline = soon()) {
  const Bytes sent(bytes, std::byte{5});
  const ByteView part(sent);
  return connection.send({&part, 1}, deadline);
}

struct OfferMessage {
  std::array<char, 8> magic = {'g', 'p', 'u', 'r', 'u', 'n', 's', 'm'};
  std::uint32_t version = 1;
  std::uint32_t ring_bytes = 4096;
};

UniqueFd memory_file(off_t bytes, unsigned seals) {
  UniqueFd file(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_TRUE(file.valid());
  EXPECT_EQ(ftruncate(file.get(), bytes), 0);
  EXPECT_EQ(fcntl(file.get(), F_ADD_SEALS, seals), 0);
  return file;
}

Status taken(const OfferMessage& message, std::vector<int> files) {
  const Sockets sockets;
  EXPECT_TRUE(
      send_message(sockets.offerer->fd(), byte_view(&message, sizeof message), files, Wait::kNever)
          .ok());
  const auto memory = take_offer(*sockets.taker, soon());
  EXPECT_TRUE(!memory.ok() || memory->is_there());
  return memory.status();
}

// If memory shrinks during its use, SIGBUS ends the process. Untrusted clients offer memory to a
// worker.
TEST(ShmOfferTest, AcceptsOnlySealedMemoryOfStatedSize) {
  constexpr unsigned kSealed = F_SEAL_SHRINK | F_SEAL_GROW;
  constexpr off_t kBytes = 4096 + 2 * 4096;
  const UniqueFd good = memory_file(kBytes, kSealed);
  EXPECT_TRUE(taken({}, {good.get()}).ok());
  const UniqueFd shrinks = memory_file(kBytes, F_SEAL_GROW);
  const UniqueFd grows = memory_file(kBytes, F_SEAL_SHRINK);
  const UniqueFd small = memory_file(kBytes - 1, kSealed);
  const UniqueFd null(open("/dev/null", O_RDWR | O_CLOEXEC));
  for (const UniqueFd* bad : {&shrinks, &grows, &small, &null}) {
    EXPECT_EQ(taken({}, {bad->get()}).code(), Code::kProtocol);
  }
}

// A file of the peer's own comes only where one is expected, and is sealed, too.
TEST(ShmOfferTest, TakesFileOnlyWhereOneIsExpected) {
  const UniqueFd good = memory_file(1 << 20, F_SEAL_SHRINK | F_SEAL_GROW);
  const UniqueFd shrinks = memory_file(1 << 20, F_SEAL_GROW);
  const auto offered = [](int fd, UniqueFd* file) {
    const Sockets sockets;
    EXPECT_TRUE(offer_file(*sockets.offerer, fd, soon()).ok());
    const auto memory = take_offer(*sockets.taker, soon(), file);
    EXPECT_TRUE(!memory.ok() || !memory->is_there());
    return memory.status();
  };
  UniqueFd file;
  EXPECT_EQ(offered(good.get(), nullptr).code(), Code::kProtocol);
  EXPECT_EQ(offered(shrinks.get(), &file).code(), Code::kProtocol);
  EXPECT_FALSE(file.valid());
  EXPECT_TRUE(offered(good.get(), &file).ok());
  EXPECT_TRUE(file.valid());
  // Rings may come where a file may.
  Sockets sockets;
  std::string why_none;
  ASSERT_TRUE(offer(*sockets.offerer, kRingBytesMin, soon(), &why_none).ok());
  UniqueFd none;
  const auto memory = take_offer(*sockets.taker, soon(), &none);
  ASSERT_TRUE(memory.ok());
  EXPECT_TRUE(memory->is_there());
  EXPECT_FALSE(none.valid());
}

TEST(ShmOfferTest, RefusesInvalidOffers) {
  const UniqueFd file = memory_file(4096 + 2 * 4096, F_SEAL_SHRINK | F_SEAL_GROW);
  OfferMessage other_magic;
  other_magic.magic[0] = 'x';
  OfferMessage other_version;
  other_version.version = 2;
  OfferMessage odd_size;
  odd_size.ring_bytes = 4097;
  OfferMessage huge;
  huge.ring_bytes = std::uint32_t{1} << 31;
  OfferMessage none;
  none.ring_bytes = 0;
  for (const OfferMessage& message : {other_magic, other_version, odd_size, huge, none}) {
    EXPECT_EQ(taken(message, {file.get()}).code(), Code::kProtocol);
  }
  EXPECT_EQ(taken({}, {}).code(), Code::kProtocol);
  EXPECT_EQ(taken({}, {file.get(), file.get()}).code(), Code::kProtocol);
  Sockets short_words;
  ASSERT_TRUE(send_bytes(*short_words.offerer, 15).ok());
  EXPECT_EQ(take_offer(*short_words.taker, soon()).status().code(), Code::kProtocol);
}

TEST(ShmOfferTest, WaitsForOfferUntilDeadline) {
  Sockets sockets;
  const auto late = take_offer(*sockets.taker, Deadline::in(std::chrono::milliseconds(20)));
  EXPECT_EQ(late.status().code(), Code::kDeadline);
  sockets.offerer.reset();
  EXPECT_EQ(take_offer(*sockets.taker, soon()).status().code(), Code::kPeerGone);
}

// ftruncate() beyond the limit of file sizes would end the program by SIGXFSZ.
TEST(ShmOfferTest, FallsBackToSocketWithoutMemory) {
  Sockets sockets;
  rlimit old = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  rlimit low = old;
  low.rlim_cur = 1000;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &low), 0);
  std::string why_none;
  auto offered = offer(*sockets.offerer, kRingBytes, soon(), &why_none);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &old), 0);
  ASSERT_TRUE(offered.ok());
  EXPECT_FALSE(offered->is_there());
  EXPECT_NE(why_none.find("ulimit -f"), std::string::npos) << why_none;
  const auto client = *share(std::move(sockets.offerer), *std::move(offered), Side::kOffered);
  ASSERT_TRUE(share_offered(sockets.taker, soon()).ok());
  const auto& server = sockets.taker;
  EXPECT_FALSE(client->capabilities().shares_memory || server->capabilities().shares_memory);
  ASSERT_TRUE(send_bytes(*client, 7).ok());
  Bytes got(7);
  EXPECT_TRUE(server->receive(got, 7, soon()).ok());
}

TEST(ShmOfferTest, LeavesTcpConnectionUnchanged) {
  auto listener = listen("tcp://127.0.0.1:0");
  ASSERT_TRUE(listener.ok());
  auto client = connect("tcp://" + (*listener)->address(), soon());
  ASSERT_TRUE(client.ok());
  const Connection* const before = client->get();
  ASSERT_TRUE(share_offered(*client, soon()).ok());
  EXPECT_EQ(client->get(), before);
}

// An impossible position would make us copy from or to memory outside the ring.
TEST(ShmConnectionTest, InvalidRingPositionEndsConnection) {
  Liar reader;
  reader.memory.to_taker().state->written.store(kRingBytesMin + 1);
  Bytes got(8);
  EXPECT_EQ(reader.taker->receive(got, 1, soon()).status().code(), Code::kPeerGone);
  EXPECT_EQ(send_bytes(*reader.taker, 1).code(), Code::kPeerGone) << "for good";

  Liar writer;
  ASSERT_TRUE(send_bytes(*writer.taker, kRingBytesMin).ok());
  writer.memory.to_offerer().state->read.store(~std::uint64_t{0});
  EXPECT_EQ(send_bytes(*writer.taker, 1).code(), Code::kPeerGone);
}

// Also for a position that goes back: the reader may report bytes again, but never more than the
// ring holds.
TEST(ShmConnectionTest, NeverReceivesMoreThanRingHolds) {
  Liar liar;
  RingState& state = *liar.memory.to_taker().state;
  Bytes got(4 * kRingBytesMin);
  state.written.store(kRingBytesMin);
  EXPECT_EQ(*liar.taker->receive_some(got, true), kRingBytesMin);
  state.written.store(kRingBytesMin / 2);
  EXPECT_EQ(liar.taker->receive_some(got, true).status().code(), Code::kPeerGone);
}

// Otherwise it would be woken for the same reason again and again.
TEST(ShmConnectionTest, FirstPollAfterPeerDeathReturnsPeerGone) {
  Liar liar;
  const auto watch = liar.taker->watch();
  ASSERT_TRUE(watch.ok());
  EXPECT_EQ((*watch)->wait(Deadline::in(std::chrono::milliseconds(1))).code(), Code::kDeadline);
  liar.offerer.reset();  // Only the socket ends, as for a killed process, which writes nothing into
                         // the ring.
  ASSERT_TRUE((*watch)->wait(soon()).ok());
  Bytes got(8);
  EXPECT_EQ(liar.taker->receive_some(got, false).status().code(), Code::kPeerGone);
}

// Bytes do not pass through the descriptor. A program that has closed it still gets a reliable
// error.
TEST(ShmConnectionTest, ReplacedDescriptorReturnsUnavailable) {
  Options options;
  options.others_may_close = true;
  Sockets sockets(options);
  std::string why_none;
  auto offered = offer(*sockets.offerer, kRingBytesMin, soon(), &why_none);
  ASSERT_TRUE(offered.ok() && offered->is_there()) << why_none;
  const auto ours = *share(std::move(sockets.offerer), *std::move(offered), Side::kOffered);
  ASSERT_TRUE(share_offered(sockets.taker, soon()).ok());
  ASSERT_TRUE(send_bytes(*sockets.taker, 8).ok());
  const UniqueFd other(open("/dev/null", O_RDWR | O_CLOEXEC));
  const UniqueFd in_its_place(dup2(other.get(), ours->fd()));
  Bytes got(8);
  EXPECT_EQ(ours->receive_some(got, false).status().code(), Code::kUnavailable);
}

// Runs `body` in a process that then dies without a goodbye. Returns after its death.
void in_dying_process(const std::function<void()>& body) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    body();
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

// Its sent bytes arrive, then the end. No thread waits for it to empty a ring.
TEST(ShmConnectionTest, PeerDeathEndsBothDirections) {
  Sockets sockets;
  in_dying_process([&] {
    std::string why_none;
    auto offered = offer(*sockets.offerer, kRingBytesMin, soon(), &why_none);
    const auto theirs = share(std::move(sockets.offerer), *std::move(offered), Side::kOffered);
    _exit(send_bytes(**theirs, 100).ok() ? 0 : 1);  // No destructor sends a goodbye.
  });
  sockets.offerer.reset();  // This process's copy.
  ASSERT_TRUE(share_offered(sockets.taker, soon()).ok());
  EXPECT_EQ(send_bytes(*sockets.taker, 2 * kRingBytesMin).code(), Code::kPeerGone);

  Sockets others;
  in_dying_process([&] {
    std::string why_none;
    auto offered = offer(*others.offerer, kRingBytesMin, soon(), &why_none);
    const auto theirs = share(std::move(others.offerer), *std::move(offered), Side::kOffered);
    _exit(send_bytes(**theirs, 100).ok() ? 0 : 1);
  });
  others.offerer.reset();
  ASSERT_TRUE(share_offered(others.taker, soon()).ok());
  const auto& reader = others.taker;
  Bytes got(200);
  const auto first = reader->receive(got, 100, soon());
  ASSERT_TRUE(first.ok()) << first.status().to_string();
  EXPECT_EQ(*first, 100U);
  EXPECT_EQ(reader->receive(got, 1, soon()).status().code(), Code::kPeerGone);
}

// A refusal, or a goodbye with its reason, is not lost because of a failed send.
TEST(ShmConnectionTest, FailedSendKeepsUnreadBytesOfPeer) {
  const Shared shared;
  ASSERT_TRUE(send_bytes(*shared.taker, 100).ok());
  shared.taker->shut_down();
  EXPECT_EQ(send_bytes(*shared.offerer, 1).code(), Code::kPeerGone);
  EXPECT_EQ(send_bytes(*shared.offerer, 2 * kRingBytesMin).code(), Code::kPeerGone);
  Bytes got(200);
  const auto last = shared.offerer->receive(got, 100, soon());
  ASSERT_TRUE(last.ok()) << last.status().to_string();
  EXPECT_EQ(*last, 100U);
  EXPECT_EQ(shared.offerer->receive(got, 1, soon()).status().code(), Code::kPeerGone);
}

// A child of fork() must not take part in its parent's connection, whatever it does.
TEST(ShmConnectionTest, ForkedChildDoesNotMapMemory) {
  const Shared shared;
  const auto maps_it = [] {
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
      if (line.find("gpurun-rings") != std::string::npos) return true;
    }
    return false;
  };
  EXPECT_TRUE(maps_it());
  in_dying_process([&] { _exit(maps_it() ? 1 : 0); });
}

int unread(const Connection& connection) {
  int bytes = -1;
  EXPECT_EQ(ioctl(connection.fd(), FIONREAD, &bytes), 0);
  return bytes;
}

// Otherwise a thread could not notice in time that nothing has arrived for too long.
TEST(ShmConnectionTest, WakeUpsWithoutBytesDoNotExtendDeadline) {
  const Liar liar;
  constexpr int kWakes = 16'000;
  const Bytes wakes(kWakes, std::byte{1});
  const ByteView part(wakes);
  ASSERT_TRUE(liar.offerer->send({&part, 1}, soon()).ok());
  Bytes got(8);
  const auto late = liar.taker->receive(got, 1, Deadline::in(std::chrono::seconds(0)));
  EXPECT_EQ(late.status().code(), Code::kDeadline);
  EXPECT_GE(unread(*liar.taker), kWakes / 2) << "it ends by the deadline, not by the last of them";
}

// Two ends that are awake never call the kernel, and a sleeping one is woken once.
TEST(ShmConnectionTest, WakesOnlySleepingPeerAndOnlyOnce) {
  const Shared shared;
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(send_bytes(*shared.offerer, 10).ok());
  EXPECT_EQ(unread(*shared.taker), 0);
  Bytes got(50);
  ASSERT_TRUE(shared.taker->receive(got, 50, soon()).ok());
  // The end declares itself asleep. Its deadline has no effect on that, and it stays declared until
  // it looks.
  const auto watch = shared.taker->watch();
  ASSERT_TRUE(watch.ok());
  EXPECT_EQ((*watch)->wait(Deadline::in(std::chrono::milliseconds(1))).code(), Code::kDeadline);
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(send_bytes(*shared.offerer, 10).ok());
  EXPECT_EQ(unread(*shared.taker), 1);
  ASSERT_TRUE((*watch)->wait(soon()).ok());
  // The wake-up does not remain, where it would wake a thread without a reason.
  ASSERT_TRUE(shared.taker->receive(got, 50, soon()).ok());
  EXPECT_EQ(unread(*shared.taker), 0);
}

// A watch that is paused for a thread that finds its bytes at once costs no system call. Neither
// end touches the socket.
TEST(ShmConnectionTest, PausedWatchIsNotWoken) {
  const Shared shared;
  const auto watch = shared.taker->watch();
  ASSERT_TRUE(watch.ok());
  EXPECT_EQ((*watch)->wait(Deadline::in(std::chrono::milliseconds(1))).code(), Code::kDeadline);
  Bytes got(10);
  for (int i = 0; i < 5; ++i) {
    (*watch)->pause();
    ASSERT_TRUE(send_bytes(*shared.offerer, 10).ok());
    EXPECT_EQ(*shared.taker->receive_some(got, false), 10U);
    (*watch)->resume();
  }
  EXPECT_EQ(unread(*shared.taker), 0);
}

// A writer waits in the kernel while the ring is full, and the reader wakes it there.
TEST(ShmConnectionTest, FullRingBlocksWriterUntilRead) {
  const Shared shared;
  EXPECT_EQ(send_bytes(*shared.offerer, 1).code(), Code::kOk);
  ASSERT_TRUE(send_bytes(*shared.offerer, kRingBytesMin - 1).ok());
  EXPECT_EQ(send_bytes(*shared.offerer, 1, Deadline::in(std::chrono::milliseconds(20))).code(),
            Code::kDeadline);
  auto sent = std::async(std::launch::async,
                         [&] { return send_bytes(*shared.offerer, 3 * kRingBytesMin); });
  Bytes got(4 * kRingBytesMin);
  EXPECT_TRUE(shared.taker->receive(got, got.size(), soon()).ok());
  EXPECT_TRUE(sent.get().ok());
}

// The reader wakes it, and not the end of a time slice.
TEST(ShmRingTest, ReadingHalfOfFullRingWakesWriter) {
  const Liar ends;  // Used because it gives access to the memory.
  RingWriter writer(ends.memory.to_taker());
  const Bytes full(kRingBytesMin, std::byte{1});
  ASSERT_EQ(writer.room(), kRingBytesMin);
  writer.put(full);
  writer.publish();
  const auto asleep = [&] { return ends.memory.to_taker().state->writer_sleeps.load() != 0; };
  const std::atomic<unsigned> nothing{0};
  auto woken = std::async(std::launch::async,
                          [&] { writer.sleep(std::chrono::seconds(60), nothing, true); });
  while (!asleep()) std::this_thread::yield();
  Bytes got(kRingBytesMin / 2 - 1);
  ASSERT_TRUE(ends.taker->receive(got, got.size(), soon()).ok());
  EXPECT_TRUE(asleep()) << "for less than half nobody is woken";
  ASSERT_TRUE(ends.taker->receive(got, 1, soon()).ok());
  ASSERT_EQ(woken.wait_for(kTimeout), std::future_status::ready);
  EXPECT_GE(writer.room().value_or(0), kRingBytesMin / 2);
}

TEST(ShmRingTest, SleepingWriterIsWokenForAnotherReasonThanRoom) {
  const Liar ends;
  RingWriter writer(ends.memory.to_taker());
  std::atomic<unsigned> wanted{0};
  // The ring has room, which this writer does not wait for.
  auto woken = std::async(std::launch::async,
                          [&] { writer.sleep(std::chrono::seconds(60), wanted, false); });
  while (ends.memory.to_taker().state->writer_sleeps.load() == 0) std::this_thread::yield();
  wanted.store(1);
  writer.wake();
  EXPECT_EQ(woken.wait_for(kTimeout), std::future_status::ready);
  writer.sleep(std::chrono::seconds(60), wanted, false);  // Returns at once.
}

// A receiver that leaves may have taken any part of what the ring holds, also across its end.
TEST(ShmRingTest, FindsBytesThatWereNotTaken) {
  const Liar ends;
  const Ring ring = ends.memory.to_taker();
  RingWriter writer(ring);
  RingReader reader(ring);
  Bytes bytes(kRingBytesMin);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7);
  writer.put(ByteView(bytes).first(1000));
  writer.publish();
  Bytes got(1000);
  ASSERT_EQ(reader.take(got), 1000U);
  writer.put(ByteView(bytes).first(kRingBytesMin - 1000));
  ASSERT_EQ(writer.room(), 1000U);
  writer.put(ByteView(bytes).first(500));  // Across the end.
  writer.publish();
  std::array<ByteView, 2> untaken;
  ASSERT_TRUE(writer.find_untaken(1000 + 200, &untaken));
  Bytes found(untaken[0].begin(), untaken[0].end());
  found.insert(found.end(), untaken[1].begin(), untaken[1].end());
  Bytes expected(bytes.begin() + 200, bytes.begin() + (kRingBytesMin - 1000));
  expected.insert(expected.end(), bytes.begin(), bytes.begin() + 500);
  EXPECT_TRUE(found == expected);
  ASSERT_TRUE(writer.find_untaken(writer.written(), &untaken));
  EXPECT_TRUE(untaken[0].empty() && untaken[1].empty());
  EXPECT_FALSE(writer.find_untaken(writer.written() + 1, &untaken)) << "more than was put";
  EXPECT_FALSE(writer.find_untaken(0, &untaken)) << "overwritten since";
  // The reader goes on behind what it gets elsewhere.
  EXPECT_FALSE(reader.skip_to(1000 + kRingBytesMin + 1)) << "more than the ring can hold";
  ASSERT_TRUE(reader.skip_to(writer.written()));
  EXPECT_FALSE(reader.has_bytes());
  EXPECT_EQ(writer.room(), 500U) << "as last seen";
}

}  // namespace
}  // namespace gpurun::transport::shm
