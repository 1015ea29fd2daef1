// TransportReporter: counts the connections that RDMA carries, and those that have left it.
#include "server/worker/transport_reporter.h"

#include <set>
#include <string>

#include "transport/carrier/connection.h"

namespace gpurun::server {

TransportReport TransportReporter::report_of(const WorkerChannels& channels) const {
  TransportReport report;
  report.numa_node = numa_node_;
  std::set<std::string> ports;
  std::string why_left;
  const auto count = [&](const transport::Connection& each) {
    const std::size_t index = report.connections++;
    if (index >= agreements_.size() || !agreements_[index].why_none.empty()) return;
    const auto& agreement = agreements_[index];
    ports.insert(agreement.ports);
    const auto* const carried = dynamic_cast<const transport::carrier::CarriedConnection*>(&each);
    if (carried == nullptr || carried->changes().left == 0) {
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

void TransportReporter::look(const WorkerChannels& channels) {
  if (exchange_ == nullptr) return;
  const TransportReport report = report_of(channels);
  if (report.over_rdma + report.left_rdma == 0 && numa_node_ < 0) return;
  if (has_told_ && report.left_rdma == told_left_) return;
  if (!exchange_->report(report)) return;
  has_told_ = true;
  told_left_ = report.left_rdma;
}

}  // namespace gpurun::server
