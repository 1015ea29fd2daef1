// ConnectionThreads: threads are detached, and counted until their end.
#include "server/daemon/links/connection_threads.h"

#include <spdlog/spdlog.h>

#include <system_error>
#include <thread>
#include <utility>

namespace gpurun::server {

void ConnectionThreads::start(HandshakeAdmission& admission,
                              HandshakeAdmission::Admitted admitted) {
  transport::Connection* link = admitted.connection.get();
  {
    const std::lock_guard lock(mutex_);
    links_.insert(link);
    ++threads_;
  }
  // Shared, so that the connection can still be closed when no thread starts.
  const auto box =
      std::make_shared<std::unique_ptr<transport::Connection>>(std::move(admitted.connection));
  try {
    std::thread([this, link, &admission, box, deadline = admitted.deadline]() mutable {
      std::unique_ptr<transport::Connection> connection = std::move(*box);
      {
        HalfOpen half_open(admission, link, wake_);
        serve_(connection, half_open, deadline);
      }
      // Behind TLS another connection owns this one.
      if (connection != nullptr) forget(link);
      connection.reset();
      // Notify under the lock: the daemon may be destroyed right after it.
      const std::lock_guard lock(mutex_);
      --threads_;
      thread_ended_.notify_all();
    }).detach();
  } catch (const std::system_error& error) {
    spdlog::warn("no thread for a connection: {}", error.what());
    admission.leave(link);
    forget(link);
    closer_.close(std::move(*box));
    const std::lock_guard lock(mutex_);
    --threads_;
  }
}

void ConnectionThreads::forget(transport::Connection* connection) {
  const std::lock_guard lock(mutex_);
  links_.erase(connection);
}

void ConnectionThreads::end(std::chrono::milliseconds last_words) {
  std::unique_lock lock(mutex_);
  thread_ended_.wait_for(lock, last_words, [this] { return threads_ == 0; });
  for (transport::Connection* link : links_) link->shut_down();
  // No deadline, because the threads use members that are destroyed after this. Each thread ends
  // soon. Connections that threads read, send or wait on have just been shut down, and
  // LeaseLinks::wait_until_free() has been told to stop. Only the connection of a refused attach is
  // no longer in links_. Its refusal has the handshake's deadline.
  thread_ended_.wait(lock, [this] { return threads_ == 0; });
}

}  // namespace gpurun::server
