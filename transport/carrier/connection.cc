// CarriedConnection: a sender and a receiver on one line.
#include "transport/carrier/connection.h"

#include <utility>

#include "transport/carrier/receiver.h"
#include "transport/carrier/sender.h"

namespace gpurun::transport::carrier {
namespace {

// How long the end of a connection waits for bytes that leave the carrier.
constexpr std::chrono::seconds kLastBytesWait{2};

class Carried final : public CarriedConnection {
 public:
  Carried(std::unique_ptr<Socket> socket, std::unique_ptr<Carrier> carrier,
          const Capabilities& capabilities, const CarrierOptions& options)
      : may_change_(options.may_change),
        capabilities_(capabilities),
        line_(std::move(socket), std::move(carrier)),
        sender_(line_, duties_, options.begins_by_carrier),
        receiver_(line_, duties_, sender_, options) {}
  ~Carried() override {
    sender_.finish(Deadline::in(kLastBytesWait));
    shut_down();
  }

  const Capabilities& capabilities() const override { return capabilities_; }
  const std::string& description() const override { return line_.description(); }
  int fd() const noexcept override { return line_.bytes().fd(); }

  Status send(std::span<const ByteView> parts, Deadline deadline) override {
    return sender_.send(parts, deadline);
  }
  Status send_paused(std::span<const ByteView> parts, Deadline deadline,
                     WatchPause& pause) override {
    return sender_.send_paused(parts, deadline, pause);
  }
  Result<std::size_t> send_some(std::span<const ByteView> parts) override {
    return sender_.send_some(parts);
  }
  Result<std::size_t> receive(MutableBytes into, std::size_t bytes_min,
                              Deadline deadline) override {
    return receiver_.receive(into, bytes_min, deadline);
  }
  Result<std::size_t> receive_some(MutableBytes into, bool again) override {
    if (into.empty() || receiver_.keeps_bytes()) return Connection::receive_some(into, again);
    return receiver_.receive_some(into, again);
  }
  bool holds_received() const noexcept override { return receiver_.holds_received(); }
  void shut_down() noexcept override { line_.shut_down(); }
  Result<std::unique_ptr<Watch>> watch() override { return receiver_.watch(); }

  Status leave() override {
    if (!may_change_) return unknown();
    receiver_.want_to_leave();
    duties_.remove(kDoEnter);
    duties_.add(kSendAsk);
    sender_.fulfil();
    return {};
  }
  Status enter() override {
    if (!may_change_) return unknown();
    duties_.add(kDoEnter);
    sender_.fulfil();
    return {};
  }
  Status attend() override { return receiver_.attend(); }
  bool wants_room() const noexcept override { return duties_.has(kFlush); }
  Changes changes() const noexcept override {
    return {receiver_.times_entered(), receiver_.times_left()};
  }
  std::string why_left() const override { return receiver_.why_left(); }
  RemoteMemory* remote_memory() noexcept override { return line_.carrier().remote_memory(); }

 private:
  Status unknown() const {
    return Status(Code::kUnavailable, description() + ": the other end does not know changes");
  }

  const bool may_change_;
  const Capabilities capabilities_;
  Line line_;
  Duties duties_;
  Sender sender_;
  Receiver receiver_;
};

}  // namespace

std::unique_ptr<CarriedConnection> carry(std::unique_ptr<Socket> socket,
                                         std::unique_ptr<Carrier> carrier,
                                         const Capabilities& capabilities,
                                         const CarrierOptions& options) {
  return std::make_unique<Carried>(std::move(socket), std::move(carrier), capabilities, options);
}

RemoteMemory* remote_memory_of(Connection& connection) noexcept {
  auto* const carried = dynamic_cast<CarriedConnection*>(&connection);
  return carried == nullptr ? nullptr : carried->remote_memory();
}

}  // namespace gpurun::transport::carrier
