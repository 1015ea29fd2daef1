// Fabric: a queue pair for each end.
#include "transport/rdma/fabric.h"

#include <utility>

#include "transport/rdma/find_ports.h"
#include "transport/rdma/queue_pair.h"
#include "transport/rdma/rdma_carrier.h"

namespace gpurun::transport::rdma {
namespace {

class VerbsEnd final : public FabricEnd {
 public:
  explicit VerbsEnd(std::unique_ptr<QueuePair> pair)
      : offer_(pair->offer()), port_(pair->port().name()), pair_(std::move(pair)) {}

  const Offer& offer() const noexcept override { return offer_; }
  std::string port() const override { return port_; }
  Result<std::unique_ptr<carrier::Carrier>> connect(const Offer& theirs) override {
    const Offer copy = theirs;
    GPURUN_RETURN_IF_ERROR(pair_->connect(copy));
    return std::unique_ptr<carrier::Carrier>(new RdmaCarrier(std::move(pair_)));
  }

 private:
  const Offer offer_;
  const std::string port_;
  std::unique_ptr<QueuePair> pair_;
};

class VerbsFabric final : public Fabric {
 public:
  explicit VerbsFabric(std::vector<Port> ports) : ports_(std::move(ports)) {}

  Result<std::unique_ptr<FabricEnd>> make_end(const Gid& local, const Offer* theirs,
                                              int fd_min) override {
    if (theirs == nullptr) {
      const Result<Port> port = choose_port(ports_, local, nullptr);
      return port.ok() ? make_largest(*port, fd_min) : port.status();
    }
    const Offer copy = *theirs;
    GPURUN_RETURN_IF_ERROR(check_offer(copy));
    const auto link = static_cast<Link>(copy.link);
    const Result<Port> port = choose_port(ports_, local, &link);
    return port.ok() ? made(QueuePair::make(*port, copy.ring_bytes, fd_min)) : port.status();
  }
  std::vector<std::string> ports() const override {
    std::vector<std::string> names;
    for (const Port& port : ports_) names.push_back(port.name());
    return names;
  }

 private:
  static Result<std::unique_ptr<FabricEnd>> made(Result<std::unique_ptr<QueuePair>> pair) {
    if (!pair.ok()) return pair.status();
    return std::unique_ptr<FabricEnd>(new VerbsEnd(*std::move(pair)));
  }

  // Limits of locked memory are often low.
  static Result<std::unique_ptr<FabricEnd>> make_largest(const Port& port, int fd_min) {
    for (std::uint32_t bytes = kRingBytes;; bytes /= 2) {
      auto pair = QueuePair::make(port, bytes, fd_min);
      const bool too_large = pair.status().code() == Code::kResourceExhausted;
      if (!too_large || bytes == kRingBytesMin) return made(std::move(pair));
    }
  }

  const std::vector<Port> ports_;  // At least one.
};

}  // namespace

const char* why_not_built() noexcept { return ""; }

Result<std::unique_ptr<Fabric>> open_fabric(const AllowedPorts& allowed,
                                            std::vector<Rejected>* rejected) {
  Result<std::vector<Port>> ports = find_ports(allowed, rejected);
  if (!ports.ok()) return ports.status();
  return std::unique_ptr<Fabric>(new VerbsFabric(*std::move(ports)));
}

}  // namespace gpurun::transport::rdma
