// WorkerFabric: one set of devices for all connections of the session.
#include "server/worker/channels/worker_fabric.h"

#include <utility>

#include "server/bulk/bulk_out.h"
#include "server/bulk/bulk_pulls.h"

namespace gpurun::server {

void WorkerFabric::open(const std::vector<PciDevice>& gpus) {
  if (!is_wanted()) return;
  std::vector<transport::rdma::Rejected> rejected;
  transport::rdma::NearTo near;
  near.gpus = gpus;
  auto opened = transport::rdma::open_fabric({trusted_, {}, trusted_, packets_}, &rejected, near);
  why_none_ = opened.status().message();
  if (opened.ok()) fabric_ = *std::move(opened);
}

void WorkerFabric::note(const WorkerChannels& channels) {
  below_ = {channels.log.get()};
  for (const auto& bulk : channels.bulk) below_.push_back(bulk.get());
}

Result<std::vector<transport::rdma::Agreement>> WorkerFabric::answer(WorkerChannels& channels,
                                                                     Deadline deadline) const {
  transport::rdma::Side side{fabric_.get(), why_none_};
  side.place.count = static_cast<unsigned>(channels.bulk.size() + 1);
  side.place.later = {BulkPulls::kStagingBytes, kStagingOutBytes};  // Reads come first.
  std::vector<transport::rdma::Agreement> agreements;
  const auto answer = [&](std::unique_ptr<transport::Connection>& connection) -> Status {
    transport::Connection* const below = below_.at(agreements.size());
    side.place.index = static_cast<unsigned>(agreements.size());
    auto agreed = transport::rdma::answer(connection, below == connection.get() ? nullptr : below,
                                          side, deadline);
    if (agreed.ok()) agreements.push_back(*std::move(agreed));
    return agreed.status();
  };
  GPURUN_RETURN_IF_ERROR(answer(channels.log));
  for (auto& bulk : channels.bulk) GPURUN_RETURN_IF_ERROR(answer(bulk));
  return agreements;
}

}  // namespace gpurun::server
