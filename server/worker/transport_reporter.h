// TransportReporter: tells the daemon what a session's connections use, for listings and the audit
// log.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "server/exchange/exchange_client.h"
#include "server/worker/channels/worker.h"
#include "transport/rdma/exchange.h"

namespace gpurun::server {

// One thread at a time.
class TransportReporter {
 public:
  // `agreements`: of the log's connection, then of the bulk connections. Empty: RDMA was not asked
  // for. `numa_node`: on which the worker runs, or -1. `exchange` may be empty.
  TransportReporter(std::shared_ptr<ExchangeClient> exchange,
                    std::vector<transport::rdma::Agreement> agreements, int numa_node)
      : exchange_(std::move(exchange)), agreements_(std::move(agreements)), numa_node_(numa_node) {}

  // Reports what has changed since the last report. Never blocks. A report that cannot be sent now
  // is sent by a later call.
  void look(const WorkerChannels& channels);

 private:
  TransportReport report_of(const WorkerChannels& channels) const;

  const std::shared_ptr<ExchangeClient> exchange_;
  const std::vector<transport::rdma::Agreement> agreements_;
  const int numa_node_;
  bool has_told_ = false;
  unsigned told_left_ = 0;
};

}  // namespace gpurun::server
