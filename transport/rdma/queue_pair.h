// QueuePair: one reliable connection (RC) of a device, with its completion queues and the channel
// on which a thread sleeps.
//
// A message of the other end arrives in one of two ways. Where both devices write (Port::writes),
// it is written into this end's ring, and a receive without memory reports it. Otherwise it is sent
// into the slot of a receive.
#pragma once

#include <infiniband/verbs.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>

#include "base/descriptor_identity.h"
#include "base/result.h"
#include "transport/rdma/memory.h"
#include "transport/rdma/offer.h"
#include "transport/rdma/port.h"

namespace gpurun::transport::rdma {

inline constexpr std::uint32_t kSends = 256;  // Requests under way.
inline constexpr std::uint32_t kReceives = 1024;
inline constexpr std::uint32_t kSlots = 64;  // Receives with memory, each a part of the ring.

class QueuePair {
 public:
  // A queue pair with registered memory. `ring_bytes`: of each direction, as in Offer. The
  // channel's descriptor is moved to `fd_min` or above.
  //   kUnavailable, kResourceExhausted
  static Result<std::unique_ptr<QueuePair>> make(const Port& port, std::uint32_t ring_bytes,
                                                 int fd_min);
  ~QueuePair();
  QueuePair(const QueuePair&) = delete;
  QueuePair& operator=(const QueuePair&) = delete;

  const Offer& offer() const noexcept { return offer_; }
  const Port& port() const noexcept { return port_; }
  const Memory& memory() const noexcept { return memory_; }

  // Posts the receives, and makes it ready for requests of the other end, and to send some. Once.
  //   kProtocol     the offer is not valid.
  //   kUnavailable  the ends do not fit, or the device refuses it.
  Status connect(const Offer& theirs);
  const Offer& theirs() const noexcept { return theirs_; }
  // Valid behind connect(), as the next three.
  bool writes() const noexcept { return offer_.writes != 0 && theirs_.writes != 0; }
  std::uint32_t receives() const noexcept { return writes() ? offer_.receives : kSlots; }
  std::uint32_t their_receives() const noexcept { return writes() ? theirs_.receives : kSlots; }
  // Bytes that may be under way or untaken in each direction: the smaller of both rings.
  std::size_t window() const noexcept {
    return std::min<std::size_t>(memory_.ring_bytes(), theirs_.ring_bytes);
  }
  // Bytes of one message at most.
  std::uint32_t step_bytes() const noexcept { return step_bytes_; }
  // The memory of a receive, if they have some.
  std::byte* slot(std::uint32_t index) const noexcept {
    return memory_.in() + slot_bytes() * index;
  }

  // Brings `bytes` at `from` in this end's memory to the other end, with `immediate`, in one
  // request. `offset`: where in the other end's ring, if it writes. `id` not 0: its completion is
  // reported with that id. False: the device refuses it.
  bool bring(const std::byte* from, std::uint32_t bytes, std::size_t offset,
             std::uint32_t immediate, std::uint64_t id) noexcept;
  // Posts a receive. `slot`: its memory, if they have some.
  bool post_receive(std::uint32_t slot) noexcept;

  // Up to `count` completions. Negative: the device has failed.
  int poll_requests(ibv_wc* into, int count) noexcept {
    return ibv_poll_cq(requests_, count, into);
  }
  int poll_receives(ibv_wc* into, int count) noexcept {
    return ibv_poll_cq(receives_, count, into);
  }

  // A descriptor that becomes readable at the next receive after arm().
  int channel_fd() const noexcept { return channel_->fd; }
  bool arm() noexcept { return ibv_req_notify_cq(receives_, 0) == 0; }
  // Takes what the channel has to say, without waiting. False: the program has closed the
  // channel's descriptor.
  bool heed_channel() noexcept;

 private:
  explicit QueuePair(const Port& port) : port_(port) {}
  Status make_objects(std::uint32_t ring_bytes, int fd_min);
  Status make_channel(int fd_min);
  Status make_queue_pair();
  Status change(ibv_qp_attr& attributes, int mask, const char* to);
  Status refused(const char* what, int error) const;
  std::size_t slot_bytes() const noexcept { return memory_.ring_bytes() / kSlots; }

  const Port port_;
  ibv_pd* pd_ = nullptr;
  ibv_comp_channel* channel_ = nullptr;
  DescriptorIdentity channel_identity_;
  ibv_cq* requests_ = nullptr;
  ibv_cq* receives_ = nullptr;
  ibv_qp* qp_ = nullptr;
  Memory memory_;
  std::uint32_t inline_bytes_max_ = 0;
  std::uint32_t step_bytes_ = 0;
  Offer offer_;
  Offer theirs_;
};

}  // namespace gpurun::transport::rdma
