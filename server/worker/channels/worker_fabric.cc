// WorkerFabric: one set of devices for all connections of the session.
#include "server/worker/channels/worker_fabric.h"

#include <utility>

#include "transport/rdma/exchange.h"

namespace gpurun::server {

void WorkerFabric::open() {
  if (!is_wanted()) return;
  std::vector<transport::rdma::Rejected> rejected;
  auto opened = transport::rdma::open_fabric({trusted_, {}}, &rejected);
  why_none_ = opened.status().message();
  if (opened.ok()) fabric_ = *std::move(opened);
}

void WorkerFabric::note(const WorkerChannels& channels) {
  below_ = {channels.log.get()};
  for (const auto& bulk : channels.bulk) below_.push_back(bulk.get());
}

Status WorkerFabric::answer(WorkerChannels& channels, Deadline deadline) const {
  const transport::rdma::Side side{fabric_.get(), why_none_, 0};
  std::size_t index = 0;
  const auto answer = [&](std::unique_ptr<transport::Connection>& connection) {
    transport::Connection* const below = below_.at(index++);
    return transport::rdma::answer(connection, below == connection.get() ? nullptr : below, side,
                                   deadline);
  };
  GPURUN_RETURN_IF_ERROR(answer(channels.log));
  for (auto& bulk : channels.bulk) GPURUN_RETURN_IF_ERROR(answer(bulk));
  return {};
}

}  // namespace gpurun::server
