// TransportReporter: reports to the daemon what a session's connections use, for listings and the
// audit log.
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
  // is sent by a later call. A connection counts once its client has entered RDMA, because the
  // client may refuse the worker's answer. True: some have not yet, so the caller looks again soon.
  // False again after kLooksMax looks.
  bool look(const WorkerChannels& channels);
  static constexpr unsigned kLooksMax = 100;

 private:
  TransportReport report_of(const WorkerChannels& channels, bool* pending) const;

  const std::shared_ptr<ExchangeClient> exchange_;
  const std::vector<transport::rdma::Agreement> agreements_;
  const int numa_node_;
  bool has_reported_ = false;
  unsigned reported_over_ = 0, reported_left_ = 0;
  unsigned looks_ = 0;
};

}  // namespace gpurun::server
