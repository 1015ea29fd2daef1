// A pipe in stdout's place, and the thread that empties it.
#include "server/worker/output_capture.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>

namespace gpurun::server {
namespace {

constexpr std::size_t kPieceBytes = std::size_t{64} << 10;
// How soon a client that was too slow is looked at again.
constexpr int kLookAgainMs = 20;

}  // namespace

Result<std::unique_ptr<OutputCapture>> OutputCapture::start(Outbox& outbox) {
  std::unique_ptr<OutputCapture> capture(new OutputCapture(outbox));
  std::fflush(stdout);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return Status::from_errno(errno, "a pipe for stdout");
  capture->read_end_.reset(ends[0]);
  const UniqueFd write_end(ends[1]);
  if (fcntl(ends[0], F_SETFL, O_NONBLOCK) != 0) return Status::from_errno(errno, "stdout's pipe");
  capture->stop_.reset(eventfd(0, EFD_CLOEXEC));
  capture->before_.reset(fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  if (!capture->stop_.valid() || !capture->before_.valid()) {
    return Status::from_errno(errno, "a descriptor for stdout");
  }
  if (dup2(write_end.get(), STDOUT_FILENO) < 0) return Status::from_errno(errno, "stdout");
  capture->thread_ = std::thread([&on = *capture] { on.run(); });
  return capture;
}

OutputCapture::~OutputCapture() {
  if (!thread_.joinable()) return;
  std::fflush(stdout);
  drain();
  dup2(before_.get(), STDOUT_FILENO);
  eventfd_write(stop_.get(), 1);
  thread_.join();
}

void OutputCapture::drain() {
  std::fflush(stdout);  // The driver prints through the C library, which keeps it for a pipe.
  post_what_is_there();
}

void OutputCapture::post_what_is_there() {
  const std::lock_guard lock(mutex_);
  int there = 0;
  if (ioctl(read_end_.get(), FIONREAD, &there) != 0) return;
  std::array<std::byte, kPieceBytes> piece;
  // No more than was there: a kernel that prints without end must not hold up a reply.
  while (there > 0) {
    const std::size_t wanted = std::min<std::size_t>(piece.size(), static_cast<std::size_t>(there));
    const ssize_t got = read(read_end_.get(), piece.data(), wanted);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return;
    protocol::ReplyHeader item;
    item.kind = protocol::ReplyKind::kOutput;
    // A failure ends the session; who made the call learns of it there.
    (void)outbox_.post(item, ByteView(piece).first(static_cast<std::size_t>(got)));
    there -= static_cast<int>(got);
  }
}

void OutputCapture::run() {
  for (;;) {
    const bool ahead = outbox_.kept_bytes() > kAheadBytes;
    std::array<pollfd, 2> polled = {pollfd{stop_.get(), POLLIN, 0},
                                    pollfd{read_end_.get(), POLLIN, 0}};
    // What is not read makes the pipe full, and a full pipe makes the printing driver wait.
    const int ready = poll(polled.data(), ahead ? 1 : 2, ahead ? kLookAgainMs : -1);
    if (ready < 0 && errno != EINTR) return;
    if (polled[0].revents != 0) return;
    if (ready > 0 && !ahead) post_what_is_there();
  }
}

}  // namespace gpurun::server
