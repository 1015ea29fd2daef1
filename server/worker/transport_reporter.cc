// TransportReporter: counts the connections that RDMA carries, and those that have left it.
#include "server/worker/transport_reporter.h"

#include <set>
#include <string>

#include "transport/carrier/connection.h"

namespace gpurun::server {

TransportReport TransportReporter::report_of(const WorkerChannels& channels, bool* pending) const {
  TransportReport report;
  report.numa_node = numa_node_;
  std::set<std::string> ports;
  std::string why_left;
  const auto count = [&](const transport::Connection& each) {
    const std::size_t index = report.connections++;
    if (index >= agreements_.size() || !agreements_[index].why_none.empty()) return;
    const auto& agreement = agreements_[index];
    const auto* const carried = dynamic_cast<const transport::carrier::CarriedConnection*>(&each);
    if (carried == nullptr || carried->changes().entered == 0) {
      *pending = true;
      return;
    }
    ports.insert(agreement.ports);
    if (carried->changes().left == 0) {
      ++report.over_rdma;
    } else if (report.left_rdma++ == 0) {
      why_left = carried->why_left();
    }
  };
  count(*channels.log);
  for (const auto& bulk : channels.bulk) count(*bulk);
  std::string all;
  for (const std::string& each : ports) all += (all.empty() ? "" : ", ") + each;
  put_text(all, &report.ports);
  put_text(why_left, &report.why_left);
  return report;
}

bool TransportReporter::look(const WorkerChannels& channels) {
  if (exchange_ == nullptr) return false;
  bool pending = false;
  const TransportReport report = report_of(channels, &pending);
  pending = pending && looks_ < kLooksMax;
  if (pending) ++looks_;
  if (report.over_rdma + report.left_rdma == 0 && numa_node_ < 0) return pending;
  if (has_reported_ && report.over_rdma == reported_over_ && report.left_rdma == reported_left_) {
    return pending;
  }
  if (!exchange_->report(report)) return pending;
  has_reported_ = true;
  reported_over_ = report.over_rdma;
  reported_left_ = report.left_rdma;
  return pending;
}

}  // namespace gpurun::server
