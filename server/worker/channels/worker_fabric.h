// WorkerFabric: what a worker has of RDMA, and how it agrees on that with its client.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/deadline.h"
#include "base/result.h"
#include "server/worker/channels/worker.h"
#include "transport/rdma/exchange.h"
#include "transport/rdma/fabric.h"

namespace gpurun::server {

class WorkerFabric {
 public:
  // `trusted`: the ports that the operator trusts. Empty: this server has no RDMA.
  WorkerFabric(std::vector<std::string> trusted, const transport::rdma::PacketClass& packets)
      : trusted_(std::move(trusted)), packets_(packets) {}

  // Opens the devices. Call it as the worker's user and in its namespaces, before system calls are
  // given up. A device that another user has opened refuses requests. `gpus`: those of the session,
  // because the nearest port comes first.
  void open(const std::vector<PciDevice>& gpus);
  // For tests, in place of open().
  void use(std::unique_ptr<transport::rdma::Fabric> fabric) noexcept {
    fabric_ = std::move(fabric);
  }
  // Whether a client may ask. It then gets an answer on each connection, with the reason if RDMA is
  // not possible.
  bool is_wanted() const noexcept { return !trusted_.empty(); }
  // Notes the connections of TCP, before something encrypts them.
  void note(const WorkerChannels& channels);
  // Answers the client on each connection, behind the answer to its attach. Those on which both
  // ends offer go on over RDMA. Returns what was agreed for each connection. Errors as
  // transport::rdma::answer().
  Result<std::vector<transport::rdma::Agreement>> answer(WorkerChannels& channels,
                                                         Deadline deadline) const;

 private:
  const std::vector<std::string> trusted_;
  const transport::rdma::PacketClass packets_;
  std::vector<transport::Connection*> below_;  // The log's, then the bulk connections'.
  std::unique_ptr<transport::rdma::Fabric> fabric_;
  std::string why_none_ =
      "workers of emulated devices are confined; confinement = \"none\" allows RDMA";
};

}  // namespace gpurun::server
