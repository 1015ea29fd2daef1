// Receiver: the receiving half of a carried connection. It takes bytes from the carrier or from the
// socket, and heeds the records of the other end. The receiving thread calls it, and the watcher
// while no thread receives.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "base/deadline.h"
#include "transport/carrier/connection.h"
#include "transport/carrier/duties.h"
#include "transport/carrier/line.h"
#include "transport/carrier/sender.h"
#include "transport/carrier/sleeper.h"
#include "transport/carrier/socket_input.h"
#include "transport/carrier/watch.h"
#include "transport/kept_bytes.h"

namespace gpurun::transport::carrier {

class Receiver final : private Watched {
 public:
  Receiver(Line& line, Duties& duties, Sender& sender, const CarrierOptions& options) noexcept
      : line_(line),
        duties_(duties),
        sender_(sender),
        may_change_(options.may_change),
        sleeper_(line.carrier()),
        by_carrier_(options.begins_by_carrier),
        entry_(options.begins_by_carrier ? 1 : 0),
        resent_(!options.begins_by_carrier) {}
  Receiver(const Receiver&) = delete;
  Receiver& operator=(const Receiver&) = delete;

  // As Connection's. receive_some() wants room and no kept bytes.
  Result<std::size_t> receive(MutableBytes into, std::size_t bytes_min, Deadline deadline);
  Result<std::size_t> receive_some(MutableBytes into, bool again);
  bool keeps_bytes() const noexcept { return !kept_.empty(); }
  bool holds_received() const noexcept { return !kept_.empty() || !input_.empty(); }
  Result<std::unique_ptr<Watch>> watch();

  // As CarriedConnection's.
  Status attend();
  // Leaves once the other end has answered. Any thread.
  void want_to_leave() noexcept { leave_wanted_.store(true); }
  std::uint64_t times_entered() const noexcept { return entered_.load(std::memory_order_relaxed); }
  std::uint64_t times_left() const noexcept { return left_.load(std::memory_order_relaxed); }
  std::string why_left() const;

 private:
  Result<std::size_t> take_some(MutableBytes into);
  Result<std::size_t> take_from_socket(MutableBytes into);
  Status sleep(Deadline deadline);
  Status read_socket(Deadline deadline);
  Result<std::size_t> look_at_socket();
  Status note_end(const Status& failed);
  Status heed_records();
  bool heed(const Record& record);
  enum class Cause : std::uint8_t { kNone, kFailure, kThisEnd, kOtherEnd };
  void leave(Cause cause);
  void leave_failed();
  bool has_ended() const noexcept {
    return ended_ || (by_carrier() && line_.carrier().is_closed_in());
  }
  // The end came before the bytes that this end has left in the carrier.
  bool finds_rest();
  // Bytes that came over the socket, or the end, as the last receiving thread left them. Any
  // thread. A thread that receives now looks again before it sleeps, or before another thread does.
  bool has_something() const noexcept {
    return has_more_.load(std::memory_order_relaxed) || line_.is_gone();
  }
  // Ends each call that receives.
  class Call {
   public:
    explicit Call(Receiver& receiver) : receiver_(receiver) {}
    ~Call();
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    Receiver& receiver_;
  };
  bool by_carrier() const noexcept { return by_carrier_.load(std::memory_order_relaxed); }

  bool go_to_sleep(bool* wants_room) override;
  bool wants_room() const noexcept override { return duties_.has(kFlush); }
  bool heed_wake(bool by_carrier_only) override;
  Stirs wake_up() noexcept override;

  Line& line_;
  Duties& duties_;
  Sender& sender_;
  const bool may_change_;
  Sleeper sleeper_;
  KeptBytes kept_;
  SocketInput input_;
  std::atomic<bool> by_carrier_;
  std::uint32_t entry_;
  bool resent_;         // Data have come over the socket since this end left.
  bool ended_ = false;  // The socket has ended. Bytes in the carrier still count.
  unsigned looks_ = 0;
  std::atomic<bool> has_more_{false};  // Written by the receiving thread, for has_something().
  std::atomic<bool> leave_wanted_{false};
  std::atomic<std::uint64_t> entered_{0};
  std::atomic<std::uint64_t> left_{0};
  std::atomic<Cause> cause_{Cause::kNone};  // Of the last time that it left.
};

}  // namespace gpurun::transport::carrier
