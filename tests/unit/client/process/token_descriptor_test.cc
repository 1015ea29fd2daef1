// Token descriptor: its bytes can be read by each holder, any number of times. Its maker learns
// when the last copy is closed, and not before. Other descriptors are refused and stay as they are.
#include "client/process/token_descriptor.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

namespace gpurun::client {
namespace {

using Token = std::array<std::uint8_t, 88>;

Token token_of(std::uint8_t first) {
  Token token{};
  token[0] = first;
  token[87] = 9;
  return token;
}
bool reads(int fd, Token* token) {
  return read_token_descriptor(fd, mutable_bytes(token, sizeof *token));
}

bool hung_up(const TokenDescriptor& made) {
  pollfd polled{made.watch.get(), 0, 0};
  return poll(&polled, 1, 0) == 1 && (polled.revents & POLLHUP) != 0;
}

TEST(TokenDescriptor, EachHolderReadsTheSameBytes) {
  Result<TokenDescriptor> made = make_token_descriptor(bytes_of(token_of(5)), 700);
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  EXPECT_GE(made->watch.get(), 700);
  EXPECT_NE(fcntl(made->watch.get(), F_GETFD) & FD_CLOEXEC, 0);
  EXPECT_EQ(fcntl(made->program, F_GETFD) & FD_CLOEXEC, 0);
  const UniqueFd program(made->program), copy(dup(made->program));
  for (const int fd : {program.get(), copy.get(), program.get()}) {
    Token token{};
    EXPECT_TRUE(reads(fd, &token));
    EXPECT_EQ(token, token_of(5));
  }
  std::array<std::uint8_t, 87> shorter{};
  EXPECT_FALSE(read_token_descriptor(program.get(), mutable_bytes(&shorter, sizeof shorter)));
  std::array<std::uint8_t, 89> longer{};
  EXPECT_FALSE(read_token_descriptor(program.get(), mutable_bytes(&longer, sizeof longer)));
}

TEST(TokenDescriptor, HangsUpWithTheLastCopyOfAnyProcess) {
  Result<TokenDescriptor> made = make_token_descriptor(bytes_of(token_of(1)), 0);
  ASSERT_TRUE(made.ok());
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    char byte = 0;
    close(ends[1]);
    _exit(read(ends[0], &byte, 1) == 0 ? 0 : 1);
  }
  const int copy = dup(made->program);
  close(made->program);
  EXPECT_FALSE(hung_up(*made));
  close(copy);
  EXPECT_FALSE(hung_up(*made)) << "the child has it";
  close(ends[1]);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(hung_up(*made));
  close(ends[0]);
}

TEST(TokenDescriptor, BytesOutliveTheirMaker) {
  Result<TokenDescriptor> made = make_token_descriptor(bytes_of(token_of(3)), 0);
  ASSERT_TRUE(made.ok());
  const UniqueFd program(made->program);
  made->watch.reset();
  Token token{};
  EXPECT_TRUE(reads(program.get(), &token));
  EXPECT_EQ(token, token_of(3));
}

TEST(TokenDescriptor, OtherDescriptorsAreRefused) {
  int ends[2], stream[2], packets[2];
  ASSERT_EQ(pipe(ends), 0);
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, stream), 0);
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, packets), 0);
  const Token token = token_of(4);
  ASSERT_EQ(write(ends[1], &token, sizeof token), static_cast<ssize_t>(sizeof token));
  ASSERT_EQ(write(stream[1], &token, sizeof token), static_cast<ssize_t>(sizeof token));
  Token read_token{};
  errno = 17;
  for (const int fd :
       {-1, 1 << 20, ends[0], ends[1], stream[0], stream[1], packets[0], packets[1]}) {
    EXPECT_FALSE(reads(fd, &read_token)) << fd;
  }
  EXPECT_EQ(errno, 17);
  EXPECT_EQ(read(stream[0], &read_token, sizeof read_token), static_cast<ssize_t>(sizeof token));
  for (const auto& pair : {ends, stream, packets}) {
    close(pair[0]);
    close(pair[1]);
  }
}

}  // namespace
}  // namespace gpurun::client
