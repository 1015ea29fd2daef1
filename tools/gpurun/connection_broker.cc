// ConnectionBroker: one poll() over the listening socket, the processes that have connected, and
// the descriptor that ends the thread.
#include "tools/gpurun/connection_broker.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "base/close_without_linger.h"
#include "base/descriptor_message.h"
#include "base/thread_name.h"
#include "client/attach/broker.h"
#include "protocol/limits.h"

namespace gpurun::tools {
namespace {

constexpr std::chrono::milliseconds kConnectMax{1000 * limits::kHandshakeDeadlineS};

// The reply is one small message, for which a new socket has room. A process that is gone gets
// none.
void reply(int fd, const Result<std::unique_ptr<transport::Connection>>& opened) {
  if (opened.ok()) {
    const std::byte given{1};
    const int attached = (*opened)->fd();
    static_cast<void>(send_message(fd, {&given, 1}, {&attached, 1}, Wait::kNever));
    return;
  }
  std::string text(1, '\0');
  text += opened.status().message();
  text.resize(std::min(text.size(), client::kBrokerReplyBytesMax));
  static_cast<void>(send_message(fd, byte_view(text.data(), text.size()), {}, Wait::kNever));
}

}  // namespace

bool ConnectionBroker::Opening::wanted() const noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  return !stopped_;
}

void ConnectionBroker::Opening::stop() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  stopped_ = true;
  if (fd_ >= 0) shutdown(fd_, SHUT_RDWR);
}

void ConnectionBroker::Opening::has_ended() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  fd_ = -1;
}

Result<std::unique_ptr<ConnectionBroker>> ConnectionBroker::start(UniqueFd socket,
                                                                  std::string server,
                                                                  std::string local) {
  UniqueFd stop(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!stop.valid()) return Status::from_errno(errno, "eventfd");
  std::unique_ptr<ConnectionBroker> broker(new ConnectionBroker(
      std::move(socket), std::move(stop), std::move(server), std::move(local)));
  try {
    broker->thread_ = std::thread([raw = broker.get()] { raw->run(); });
  } catch (const std::system_error& error) {
    return Status(Code::kResourceExhausted,
                  std::string("no thread for the session folder: ") + error.what());
  }
  return broker;
}

ConnectionBroker::ConnectionBroker(UniqueFd socket, UniqueFd stop, std::string server,
                                   std::string local)
    : socket_(std::move(socket)),
      stop_(std::move(stop)),
      server_(std::move(server)),
      local_(std::move(local)) {}

ConnectionBroker::~ConnectionBroker() {
  eventfd_write(stop_.get(), 1);
  opening_.stop();
  if (thread_.joinable()) thread_.join();
  for (Asker& each : askers_) close_without_linger(std::move(each.fd));
}

void ConnectionBroker::run() {
  name_this_thread("gpurun-broker");
  for (;;) {
    std::vector<pollfd> entries = {{stop_.get(), POLLIN, 0}, {socket_.get(), POLLIN, 0}};
    for (const Asker& each : askers_) entries.push_back({each.fd.get(), POLLIN, 0});
    if (poll(entries.data(), entries.size(), next_wait_ms()) < 0) {
      if (errno == EINTR) continue;
      return;
    }
    if (entries[0].revents != 0) return;
    std::vector<Asker> waiting;
    for (std::size_t i = 0; i < askers_.size(); ++i) {
      const short events = entries[2 + i].revents;
      // A process that has gone needs no connection.
      if ((events & POLLIN) != 0 && (events & POLLHUP) == 0) answer(askers_[i].fd.get());
      if (events == 0 && !askers_[i].until.passed()) {
        waiting.push_back(std::move(askers_[i]));
      } else {
        // Messages that were not received may have descriptors that linger.
        close_without_linger(std::move(askers_[i].fd));
      }
    }
    askers_ = std::move(waiting);
    if (entries[1].revents != 0) accept_one();
  }
}

int ConnectionBroker::next_wait_ms() const {
  return askers_.empty() ? -1 : askers_.front().until.poll_timeout_ms();
}

void ConnectionBroker::accept_one() {
  UniqueFd fd(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!fd.valid()) {
    // Without descriptors the process stays in the queue, and poll() would return at once.
    if (errno == EMFILE || errno == ENFILE || errno == ENOMEM) (void)poll(nullptr, 0, 10);
    return;
  }
  if (askers_.size() >= kAskersMax) {  // The oldest has had the most time to ask.
    close_without_linger(std::move(askers_.front().fd));
    askers_.erase(askers_.begin());
  }
  askers_.push_back({std::move(fd), Deadline::in(kAskWithin)});
}

void ConnectionBroker::answer(int fd) {
  if (!opening_.wanted()) return;
  client::BrokerRequest wanted = {};
  const Result<DescriptorMessage> request = receive_message(fd, sizeof wanted, Wait::kNever);
  if (!request.ok()) return;
  for (const UniqueFd& each : request->attached) let_not_linger(each);
  if (request->bytes.size() == sizeof wanted) {
    std::memcpy(&wanted, request->bytes.data(), sizeof wanted);
  }
  std::string url;
  if (wanted.kind == client::BrokerKind::kTcp) url = "tcp://" + server_;
  if (wanted.kind == client::BrokerKind::kLocal) url = local_;
  if (url.empty()) {
    reply(fd, Status(Code::kInvalidArgument, "gpurun opens no connection of this kind"));
    return;
  }
  transport::Options options;
  options.keeper = &opening_;
  const auto opened = transport::connect(
      url, Deadline::in(std::min(kConnectMax, std::chrono::milliseconds(wanted.within_ms))),
      options);
  reply(fd, opened);
  opening_.has_ended();
}

}  // namespace gpurun::tools
