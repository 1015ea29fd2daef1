// Fabric: a queue pair for each end.
#include "transport/rdma/fabric.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "transport/rdma/find_ports.h"
#include "transport/rdma/locked_memory.h"
#include "transport/rdma/queue_pair.h"
#include "transport/rdma/rdma_carrier.h"

namespace gpurun::transport::rdma {
namespace {

class VerbsEnd final : public FabricEnd {
 public:
  explicit VerbsEnd(std::unique_ptr<QueuePair> pair)
      : offer_(pair->offer()),
        port_(pair->port().name()),
        why_port_(pair->port().why_first),
        pair_(std::move(pair)) {}

  const Offer& offer() const noexcept override { return offer_; }
  std::string port() const override { return port_; }
  std::string why_port() const override { return why_port_; }
  Result<std::unique_ptr<carrier::Carrier>> connect(const Offer& theirs) override {
    const Offer copy = theirs;
    GPURUN_RETURN_IF_ERROR(pair_->connect(copy));
    return std::unique_ptr<carrier::Carrier>(new RdmaCarrier(std::move(pair_)));
  }

 private:
  const Offer offer_;
  const std::string port_;
  const std::string why_port_;
  std::unique_ptr<QueuePair> pair_;
};

class VerbsFabric final : public Fabric {
 public:
  explicit VerbsFabric(std::vector<Port> ports)
      : ports_(std::move(ports)), lockable_(lockable_bytes()) {}

  Result<std::unique_ptr<FabricEnd>> make_end(const Gid& local, const Offer* theirs,
                                              const EndPlace& place) override {
    std::uint32_t ring_bytes = ring_bytes_for(lockable_, place.count, place.later);
    Link link = Link::kInfiniBand;
    Offer copied;
    if (theirs != nullptr) {
      copied = *theirs;
      GPURUN_RETURN_IF_ERROR(check_offer(copied));
      link = static_cast<Link>(copied.link);
      ring_bytes = std::min(ring_bytes, std::max(copied.ring_bytes, kRingBytesMin));
    }
    const std::vector<Port> leading = theirs == nullptr ? ports_ : leading_to(copied);
    const Result<Port> port = choose_port(leading, local, theirs == nullptr ? nullptr : &link,
                                          place.index == 0 ? 0 : place.index - 1);
    const Role role = theirs == nullptr ? Role::kLends : Role::kReads;
    return port.ok() ? make_largest(*port, ring_bytes, role) : port.status();
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

  // The ports in the fabric of the offer. All, where no port is in it: check_match() then names
  // the difference.
  std::vector<Port> leading_to(const Offer& theirs) const {
    std::vector<Port> leading = ports_;
    std::erase_if(leading, [&](const Port& port) { return !same_fabric(port, theirs); });
    return leading.empty() ? ports_ : leading;
  }

  // Other memory of this process may be locked, too, and a device may have a limit of its own.
  static Result<std::unique_ptr<FabricEnd>> make_largest(const Port& port, std::uint32_t ring_bytes,
                                                         Role role) {
    for (std::uint32_t bytes = ring_bytes;; bytes /= 2) {
      auto pair = QueuePair::make(port, bytes, role);
      const bool too_large = pair.status().code() == Code::kResourceExhausted;
      if (!too_large || bytes <= kRingBytesMin) return made(std::move(pair));
    }
  }

  const std::vector<Port> ports_;                // At least one.
  const std::optional<std::uint64_t> lockable_;  // As lockable_bytes().
};

}  // namespace

const char* why_not_built() noexcept { return ""; }

Result<std::unique_ptr<Fabric>> open_fabric(const AllowedPorts& allowed,
                                            std::vector<Rejected>* rejected, const NearTo& near,
                                            const Gid* local, const DescriptorPlace& place) {
  Result<std::vector<Port>> ports = find_ports(allowed, rejected, near, local, place);
  if (!ports.ok()) return ports.status();
  return std::unique_ptr<Fabric>(new VerbsFabric(*std::move(ports)));
}

}  // namespace gpurun::transport::rdma
