// ConnectionBroker: one poll() over the listening socket, the processes that have connected, and
// the descriptor that ends the thread.
#include "tools/gpurun/connection_broker.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <utility>

#include "base/descriptor_message.h"
#include "base/thread_name.h"
#include "client/attach/broker.h"
#include "protocol/limits.h"
#include "transport/transport.h"

namespace gpurun::tools {
namespace {

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

Result<std::unique_ptr<ConnectionBroker>> ConnectionBroker::start(UniqueFd socket,
                                                                  std::string server,
                                                                  std::string local) {
  UniqueFd stop(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!stop.valid()) return Status::from_errno(errno, "eventfd");
  std::unique_ptr<ConnectionBroker> broker(new ConnectionBroker(
      std::move(socket), std::move(stop), std::move(server), std::move(local)));
  broker->thread_ = std::thread([raw = broker.get()] { raw->run(); });
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
  if (thread_.joinable()) thread_.join();
}

void ConnectionBroker::run() {
  name_this_thread("gpurun-broker");
  for (;;) {
    std::vector<pollfd> entries = {{stop_.get(), POLLIN, 0}, {socket_.get(), POLLIN, 0}};
    for (const Asker& each : askers_) entries.push_back({each.fd.get(), POLLIN, 0});
    if (poll(entries.data(), entries.size(), next_wait_ms()) < 0 && errno != EINTR) return;
    if (entries[0].revents != 0) return;
    for (std::size_t i = askers_.size(); i-- > 0;) {
      const bool ready = entries[2 + i].revents != 0;
      if (ready) answer(askers_[i].fd.get());
      if (!ready && !askers_[i].until.passed()) continue;
      askers_.erase(askers_.begin() + static_cast<std::ptrdiff_t>(i));
    }
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
  // The oldest has had the most time to ask.
  if (askers_.size() >= kAskersMax) askers_.erase(askers_.begin());
  askers_.push_back({std::move(fd), Deadline::in(kAskWithin)});
}

void ConnectionBroker::answer(int fd) const {
  // Descriptors that come with a request are closed with the message, without a linger time.
  const Result<DescriptorMessage> request = receive_message(fd, 1, Wait::kNever);
  if (!request.ok()) return;
  for (const UniqueFd& each : request->attached) let_not_linger(each);
  const auto kind = static_cast<client::BrokerKind>(request->bytes.front());
  std::string url;
  if (kind == client::BrokerKind::kTcp) url = "tcp://" + server_;
  if (kind == client::BrokerKind::kLocal) url = local_;
  if (url.empty()) {
    reply(fd, Status(Code::kInvalidArgument, "gpurun opens no connection of this kind"));
    return;
  }
  reply(fd,
        transport::connect(url, Deadline::in(std::chrono::seconds(limits::kHandshakeDeadlineS))));
}

}  // namespace gpurun::tools
