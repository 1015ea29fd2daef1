// OutputCapture: pipes that replace stdout and stderr, and the thread that drains them.
#include "server/worker/execution/output_capture.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "base/thread_name.h"

namespace gpurun::server {
namespace {

constexpr std::size_t kPieceBytes = std::size_t{64} << 10;
// The interval for polling a client that was too slow.
constexpr int kLookAgainMs = 20;

}  // namespace

Result<std::unique_ptr<OutputCapture>> OutputCapture::start(Outbox& outbox) {
  std::unique_ptr<OutputCapture> capture(new OutputCapture(outbox));
  std::fflush(stdout);
  int ends[2];
  int error_ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return Status::from_errno(errno, "a pipe for stdout");
  capture->read_end_.reset(ends[0]);
  const UniqueFd write_end(ends[1]);
  if (pipe2(error_ends, O_CLOEXEC) != 0) return Status::from_errno(errno, "a pipe for stderr");
  capture->errors_read_end_.reset(error_ends[0]);
  UniqueFd errors_write_end(error_ends[1]);
  if (fcntl(ends[0], F_SETFL, O_NONBLOCK) != 0 || fcntl(error_ends[0], F_SETFL, O_NONBLOCK) != 0) {
    return Status::from_errno(errno, "pipes for stdout and stderr");
  }
  capture->written_.reset(epoll_create1(EPOLL_CLOEXEC));
  for (const int pipe : {ends[0], error_ends[0]}) {
    epoll_event written = {};
    written.events = EPOLLIN;
    if (epoll_ctl(capture->written_.get(), EPOLL_CTL_ADD, pipe, &written) != 0) {
      return Status::from_errno(errno, "watching the pipes for stdout and stderr");
    }
  }
  capture->stop_.reset(eventfd(0, EFD_CLOEXEC));
  capture->before_.reset(fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  if (!capture->stop_.valid() || !capture->before_.valid()) {
    return Status::from_errno(errno, "a descriptor for stdout");
  }
  std::FILE* errors = fdopen(errors_write_end.get(), "w");
  if (errors == nullptr) return Status::from_errno(errno, "a stream for stderr");
  (void)errors_write_end.release();
  std::setvbuf(errors, nullptr, _IONBF, 0);
  if (dup2(write_end.get(), STDOUT_FILENO) < 0) {
    std::fclose(errors);
    return Status::from_errno(errno, "stdout");
  }
  capture->errors_ = errors;
  capture->errors_before_ = std::exchange(stderr, errors);
  capture->thread_ = std::thread([&on = *capture] { on.run(); });
  return capture;
}

OutputCapture::~OutputCapture() {
  if (!thread_.joinable()) return;
  std::fflush(stdout);
  drain();
  dup2(before_.get(), STDOUT_FILENO);
  stderr = errors_before_;
  eventfd_write(stop_.get(), 1);
  thread_.join();
  std::fclose(errors_);
}

void OutputCapture::drain() {
  std::fflush(stdout);  // The C library buffers what the driver prints to a pipe.
  post_what_is_there();
}

void OutputCapture::post_what_is_there() {
  const std::lock_guard lock(mutex_);
  // Runs before nearly every reply and mostly finds nothing. It costs half of what poll(2) does.
  epoll_event pipe;
  int ready = 0;
  do ready = epoll_wait(written_.get(), &pipe, 1, 0);
  while (ready < 0 && errno == EINTR);
  if (ready <= 0) return;
  post_from(read_end_.get(), 0);
  post_from(errors_read_end_.get(), protocol::kReplyFlagErrors);
}

void OutputCapture::post_from(int pipe, std::uint8_t flags) {
  int there = 0;
  if (ioctl(pipe, FIONREAD, &there) != 0) return;
  std::array<std::byte, kPieceBytes> piece;
  // At most what was there, so that a kernel that prints without end does not delay a reply.
  while (there > 0) {
    const std::size_t wanted = std::min<std::size_t>(piece.size(), static_cast<std::size_t>(there));
    const ssize_t got = read(pipe, piece.data(), wanted);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return;
    protocol::ReplyHeader item;
    item.kind = protocol::ReplyKind::kOutput;
    item.flags = flags;
    // A failure ends the session, and the caller learns of it there.
    (void)outbox_.post(item, ByteView(piece).first(static_cast<std::size_t>(got)));
    there -= static_cast<int>(got);
  }
}

void OutputCapture::run() {
  name_this_thread("gpurun-output");
  for (;;) {
    const bool ahead = outbox_.kept_bytes() > kAheadBytes;
    std::array<pollfd, 3> polled = {pollfd{stop_.get(), POLLIN, 0},
                                    pollfd{read_end_.get(), POLLIN, 0},
                                    pollfd{errors_read_end_.get(), POLLIN, 0}};
    // Unread output fills the pipe, and a full pipe blocks the driver that prints.
    const int ready = poll(polled.data(), ahead ? 1 : polled.size(), ahead ? kLookAgainMs : -1);
    if (ready < 0 && errno != EINTR) return;
    if (polled[0].revents != 0) return;
    if (ready > 0 && !ahead) post_what_is_there();
  }
}

}  // namespace gpurun::server
