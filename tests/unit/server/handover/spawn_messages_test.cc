// Spawn messages: a daemon tells a worker what to serve. Messages arrive unchanged. A message that
// is too long, too short or invalid is an error, and leaves no descriptor open.
#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "base/descriptor_message.h"
#include "protocol/control/control.h"
#include "server/handover/spawn_assignment.h"
#include "server/handover/spawn_extra_bulk.h"
#include "server/handover/spawn_hand_over.h"

namespace gpurun::server {
namespace {

struct Pair {
  UniqueFd ours, theirs;
  Pair() {
    int ends[2] = {-1, -1};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    ours.reset(ends[0]);
    theirs.reset(ends[1]);
    const int room = 4 << 20;  // Lets a message that is too long reach the receiver.
    setsockopt(ours.get(), SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
  }
};

std::vector<UniqueFd> files(std::size_t count) {
  std::vector<UniqueFd> made;
  while (made.size() < count) made.emplace_back(open("/dev/null", O_RDONLY | O_CLOEXEC));
  return made;
}
std::vector<int> numbers(const std::vector<UniqueFd>& files) {
  std::vector<int> all;
  for (const UniqueFd& file : files) all.push_back(file.get());
  return all;
}
std::ptrdiff_t open_descriptors() {
  std::ptrdiff_t count = 0;
  DIR* folder = opendir("/proc/self/fd");
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

// Sends more descriptors than either side accepts, which send_message() would not.
void send_any(int socket, ByteView bytes, const std::vector<int>& attached) {
  iovec run = {const_cast<std::byte*>(bytes.data()), bytes.size()};
  std::vector<std::byte> control(CMSG_SPACE(attached.size() * sizeof(int)));
  msghdr header{};
  header.msg_iov = &run;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  cmsghdr* rights = CMSG_FIRSTHDR(&header);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(attached.size() * sizeof(int));
  std::memcpy(CMSG_DATA(rights), attached.data(), attached.size() * sizeof(int));
  ASSERT_EQ(sendmsg(socket, &header, MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
}

// The bytes that `send` writes.
template <typename Send>
Bytes sent_by(Send send) {
  const Pair pair;
  EXPECT_TRUE(send(pair.ours.get()).ok());
  Bytes bytes(std::size_t{1} << 20);
  const ssize_t got = recv(pair.theirs.get(), bytes.data(), bytes.size(), 0);
  bytes.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  return bytes;
}

Assignment assignment_of(std::size_t letters) {
  Assignment assignment;
  assignment.memory_bytes = 12345;
  assignment.leased = true;
  assignment.gpus = 3;
  assignment.visible.assign(letters, '7');
  return assignment;
}

WorkerOrder order_of(const std::string& user) {
  WorkerOrder order;
  order.user.name = user;
  order.user.token = "0123456789ab";
  order.session.fill(1);
  order.key.fill(2);
  order.rows.fill(3);
  order.encrypted = true;
  order.lease.fill(4);
  order.ticket.fill(5);
  return order;
}

template <typename Receive>
Code code_of(ByteView bytes, std::size_t attached, Receive receive) {
  const Pair pair;
  const std::vector<UniqueFd> given = files(attached);
  const std::ptrdiff_t before = open_descriptors();
  if (attached > 0) {
    send_any(pair.ours.get(), bytes, numbers(given));
  } else {
    EXPECT_EQ(send(pair.ours.get(), bytes.data(), bytes.size(), 0),
              static_cast<ssize_t>(bytes.size()));
  }
  const Code code = receive(pair.theirs.get()).status().code();
  EXPECT_EQ(open_descriptors(), before);
  return code;
}

TEST(SpawnAssignment, ArrivesUnchanged) {
  const Pair pair;
  Assignment said = assignment_of(kVisibleBytesMax);
  said.ledgers = files(kAttachedMax);
  ASSERT_TRUE(send_assignment(pair.ours.get(), said).ok());
  const auto heard = receive_assignment(pair.theirs.get());
  ASSERT_TRUE(heard.ok()) << heard.status().to_string();
  EXPECT_EQ(heard->visible, said.visible);
  EXPECT_EQ(heard->ledgers.size(), kAttachedMax);
  EXPECT_EQ(heard->memory_bytes, 12345u);
  EXPECT_EQ(heard->gpus, 3u);
  EXPECT_TRUE(heard->leased);
}

TEST(SpawnAssignment, SendRefusesValuesOverLimits) {
  const Pair pair;
  EXPECT_EQ(send_assignment(pair.ours.get(), assignment_of(kVisibleBytesMax + 1)).code(),
            Code::kInternal);
  Assignment many = assignment_of(1);
  many.ledgers = files(kAttachedMax + 1);
  EXPECT_EQ(send_assignment(pair.ours.get(), many).code(), Code::kInternal);
  std::byte none;
  EXPECT_EQ(recv(pair.theirs.get(), &none, 1, MSG_DONTWAIT), -1);
}

TEST(SpawnAssignment, ReceiveRejectsInvalidMessages) {
  const Bytes whole =
      sent_by([](int socket) { return send_assignment(socket, assignment_of(kVisibleBytesMax)); });
  const std::size_t fixed = whole.size() - kVisibleBytesMax;
  const auto receive = [](int socket) { return receive_assignment(socket); };
  EXPECT_EQ(code_of(whole, 0, receive), Code::kOk);
  EXPECT_EQ(code_of(ByteView(whole).first(fixed), 0, receive), Code::kOk);  // No GPU is visible.
  EXPECT_EQ(code_of(ByteView(whole).first(fixed - 1), 0, receive), Code::kProtocol);
  EXPECT_EQ(code_of(ByteView(whole).first(1), 0, receive), Code::kProtocol);
  EXPECT_EQ(code_of(whole, kAttachedMax + 1, receive), Code::kProtocol);
  Bytes longer = whole;
  longer.push_back(std::byte{'7'});
  EXPECT_EQ(code_of(longer, 1, receive), Code::kProtocol);
  Bytes other = whole;
  other[0] ^= std::byte{1};
  EXPECT_EQ(code_of(other, 1, receive), Code::kProtocol);
  Pair gone;
  gone.ours.reset();
  EXPECT_EQ(receive(gone.theirs.get()).status().code(), Code::kPeerGone);
}

TEST(SpawnHandOver, ArrivesUnchanged) {
  const Pair pair;
  const WorkerOrder said = order_of("someone");
  const std::vector<UniqueFd> given = files(protocol::kConnectionsMax);
  ASSERT_TRUE(send_hand_over(pair.ours.get(), said, numbers(given)).ok());
  const auto heard = receive_hand_over(pair.theirs.get());
  ASSERT_TRUE(heard.ok()) << heard.status().to_string();
  EXPECT_EQ(heard->session, said.session);
  EXPECT_EQ(heard->key, said.key);
  EXPECT_EQ(heard->rows, said.rows);
  EXPECT_EQ(heard->lease, said.lease);
  EXPECT_EQ(heard->ticket, said.ticket);
  EXPECT_EQ(heard->images, images_of(said.user));
  EXPECT_TRUE(heard->encrypted);
  EXPECT_EQ(heard->connections.size(), given.size());
}

TEST(SpawnHandOver, SendRefusesValuesOverLimits) {
  const Pair pair;
  const WorkerOrder order = order_of("someone");
  for (const std::size_t count : {std::size_t{1}, std::size_t{protocol::kConnectionsMax} + 1}) {
    const std::vector<UniqueFd> given = files(count);
    EXPECT_EQ(send_hand_over(pair.ours.get(), order, numbers(given)).code(), Code::kInternal);
  }
  const std::vector<UniqueFd> two = files(2);
  EXPECT_EQ(send_hand_over(pair.ours.get(), order_of(std::string(256, 'x')), numbers(two)).code(),
            Code::kInternal);
  std::byte none;
  EXPECT_EQ(recv(pair.theirs.get(), &none, 1, MSG_DONTWAIT), -1);
}

TEST(SpawnHandOver, ReceiveRejectsInvalidMessages) {
  const std::vector<UniqueFd> two = files(2);
  const Bytes whole = sent_by(
      [&](int socket) { return send_hand_over(socket, order_of("someone"), numbers(two)); });
  const auto receive = [](int socket) { return receive_hand_over(socket); };
  EXPECT_EQ(code_of(whole, 2, receive), Code::kOk);
  EXPECT_EQ(code_of(ByteView(whole).first(whole.size() - 1), 2, receive), Code::kProtocol);
  Bytes longer = whole;
  longer.push_back(std::byte{0});
  EXPECT_EQ(code_of(longer, 2, receive), Code::kProtocol);
  for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{3}}) {
    EXPECT_EQ(code_of(whole, count, receive), Code::kProtocol) << count;
  }
  Bytes other = whole;
  other[0] ^= std::byte{1};
  EXPECT_EQ(code_of(other, 2, receive), Code::kProtocol);
  // A message with one connection is invalid, because a session has at least two.
  Bytes alone = whole;
  alone[4] = std::byte{1};
  EXPECT_EQ(code_of(alone, 1, receive), Code::kProtocol);
  // The folder's name comes last, and must end within the message.
  const std::string name = images_of(order_of("someone").user);
  const ByteView text = byte_view(name.data(), name.size());
  Bytes endless = whole;
  const auto place = std::search(endless.begin(), endless.end(), text.begin(), text.end());
  ASSERT_NE(place, endless.end());
  std::fill(place, endless.end(), std::byte{'x'});
  EXPECT_EQ(code_of(endless, 2, receive), Code::kProtocol);
}

// Otherwise a peer could choose how long the last close of its socket blocks.
TEST(DescriptorMessages, RejectedMessageDisablesLingerOfItsSocket) {
  const Pair pair;
  const UniqueFd given(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_TRUE(given.valid());
  const Bytes too_long(64);
  for (const ByteView bytes : {ByteView(), ByteView(too_long)}) {
    linger lingers = {1, 60};
    ASSERT_EQ(setsockopt(given.get(), SOL_SOCKET, SO_LINGER, &lingers, sizeof lingers), 0);
    send_any(pair.ours.get(), bytes, {given.get()});
    EXPECT_FALSE(receive_message(pair.theirs.get(), 32, Wait::kYes).ok());
    socklen_t length = sizeof lingers;
    ASSERT_EQ(getsockopt(given.get(), SOL_SOCKET, SO_LINGER, &lingers, &length), 0);
    EXPECT_EQ(lingers.l_onoff, 0) << bytes.size();
  }
}

TEST(SpawnExtraBulk, ArrivesUnchanged) {
  const Pair pair;
  const std::vector<UniqueFd> one = files(1);
  Joining said{15, {}};
  said.key.fill(9);
  ASSERT_TRUE(send_joining(pair.ours.get(), said, one[0].get()).ok());
  UniqueFd connection;
  const auto heard = receive_joining(pair.theirs.get(), &connection);
  ASSERT_TRUE(heard.ok()) << heard.status().to_string();
  EXPECT_EQ(heard->index, 15);
  EXPECT_EQ(heard->key, said.key);
  EXPECT_TRUE(connection.valid());
}

TEST(SpawnExtraBulk, SendRefusesInvalidIndex) {
  const Pair pair;
  const std::vector<UniqueFd> one = files(1);
  for (const std::uint16_t index : {std::uint16_t{0}, std::uint16_t{1}, std::uint16_t{16}}) {
    EXPECT_EQ(send_joining(pair.ours.get(), {index, {}}, one[0].get()).code(), Code::kInternal);
  }
}

TEST(SpawnExtraBulk, RejectedMessageLeavesNoDescriptorOpen) {
  const std::vector<UniqueFd> one = files(1);
  const Bytes good = sent_by([&](int socket) {
    return send_joining(socket, {2, {}}, one[0].get());
  });
  const auto receive = [](int socket) {
    UniqueFd connection;
    return receive_joining(socket, &connection);
  };
  ASSERT_EQ(code_of(good, 1, receive), Code::kOk);
  EXPECT_EQ(code_of(good, 0, receive), Code::kProtocol);
  EXPECT_EQ(code_of(good, 2, receive), Code::kProtocol);
  Bytes longer = good;
  longer.push_back(std::byte{0});
  EXPECT_EQ(code_of(longer, 1, receive), Code::kProtocol);
  EXPECT_EQ(code_of(ByteView(good).first(good.size() - 1), 1, receive), Code::kProtocol);
  for (const std::size_t at : {std::size_t{0}, std::size_t{4}, std::size_t{5}}) {
    Bytes wrong = good;
    wrong[at] ^= std::byte{0x7f};
    EXPECT_EQ(code_of(wrong, 1, receive), Code::kProtocol) << at;
  }
}

}  // namespace
}  // namespace gpurun::server
