// Bulk: its start and end.
#include "client/bulk/bulk.h"

#include <mutex>

namespace gpurun::client {

Bulk::Bulk(std::vector<transport::Connection*> connections, Listener listener, Known known,
           std::optional<ConnectionCount::Bounds> bounds)
    : state_(listener, known, static_cast<unsigned>(connections.size()), bounds),
      uploads_(state_, connections.front()->capabilities().shares_memory),
      downloads_(state_),
      connections_(state_, uploads_, downloads_, connections) {}

Status Bulk::start() {
  GPURUN_RETURN_IF_ERROR(state_.window.map());
  return connections_.start();
}

void Bulk::end() noexcept {
  const std::lock_guard<std::mutex> lock(state_.mutex);
  state_.ended = true;
  connections_.shut_down_joined();
  state_.to_send.notify_all();
  state_.unused.notify_all();
  state_.room.notify_all();
  state_.read_done.notify_all();
  state_.completed.notify_all();
}

}  // namespace gpurun::client
