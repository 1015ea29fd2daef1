// QueuePair: one reliable connection (RC) of a device, with its completion queues and the channel
// on which a thread sleeps.
//
// A message of the other end arrives in one of two ways. Where both devices write (Port::writes),
// it is written into this end's ring, and a receive without memory reports it. Otherwise it is sent
// into the slot of a receive.
//
// Beside these messages, the end that attaches may lend memory, and the other end's device reads or
// writes it (RDMA READ, RDMA WRITE). These requests need no receive. Each takes a place among the
// requests, which complete in their order.
#pragma once

#include <infiniband/verbs.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "transport/rdma/descriptors.h"
#include "transport/rdma/memory.h"
#include "transport/rdma/offer.h"
#include "transport/rdma/port.h"
#include "transport/rdma/regions.h"

namespace gpurun::transport::rdma {

inline constexpr std::uint32_t kSends = 256;  // Requests under way.
inline constexpr std::uint32_t kReceives = 1024;
inline constexpr std::uint32_t kSlots = 64;  // Receives with memory, each a part of the ring.

// What an end does with memory of the other one.
enum class Role : std::uint8_t {
  kLends,  // The other end reads and writes memory of this one.
  kReads,  // This end does. A thread can sleep until a read or a write has ended.
  kBoth
};

class QueuePair {
 public:
  // A queue pair with registered memory. `ring_bytes`: of each direction, as in Offer.
  //   kUnavailable, kResourceExhausted
  static Result<std::unique_ptr<QueuePair>> make(const Port& port, std::uint32_t ring_bytes,
                                                 Role role);
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
  // Valid behind connect(), as the next four.
  std::uint8_t reads() const noexcept { return std::min(offer_.reads, theirs_.reads); }
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
  // Reads `bytes` at `from` of the other end, which has lent them with `key`, to `into`. False: the
  // device refuses it.
  bool read(std::byte* into, std::uint32_t local_key, std::uint64_t from, std::uint32_t key,
            std::uint32_t bytes, std::uint64_t id) noexcept;
  // The same in the other direction.
  bool write(const std::byte* from, std::uint32_t local_key, std::uint64_t to, std::uint32_t key,
             std::uint32_t bytes, std::uint64_t id) noexcept;
  // Registers memory that the other end may read or write, and memory that reads fill or that
  // writes come from. Errors as Regions::add().
  Result<RegionKeys> lend(std::byte* start, std::size_t bytes) {
    return register_memory(start, bytes, IBV_ACCESS_REMOTE_READ);
  }
  Result<RegionKeys> enroll(std::byte* start, std::size_t bytes) {
    return register_memory(start, bytes, IBV_ACCESS_LOCAL_WRITE);
  }
  Result<RegionKeys> lend_for_writing(std::byte* start, std::size_t bytes) {
    return register_memory(start, bytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  }
  Result<RegionKeys> enroll_source(std::byte* start, std::size_t bytes) {
    return register_memory(start, bytes, 0);
  }
  Result<RegionKeys> enroll_device(const RemoteMemory::DeviceMemory& memory) {
    return regions_.add_device(pd_, memory);
  }
  // To end some of them. What a program has put under the device's number gets no command then, and
  // the kernel keeps the memory registered until the process ends.
  Regions& regions() noexcept {
    static_cast<void>(port_.device->check());
    return regions_;
  }
  // Its requests and receives end soon, and fail.
  void give_up() noexcept;
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
  int channel_fd() const noexcept { return channel_.verbs->fd; }
  bool arm() noexcept { return ibv_req_notify_cq(receives_, 0) == 0; }
  // Takes an event that the channel has, without waiting. False: the program has closed the
  // channel's descriptor, or the device's.
  bool heed_channel() noexcept { return heed(channel_); }
  // The same three for the next completion of a request. For an end that reads.
  int requests_fd() const noexcept { return requests_channel_.verbs->fd; }
  bool arm_requests() noexcept { return ibv_req_notify_cq(requests_, 0) == 0; }
  bool heed_requests_channel() noexcept { return heed(requests_channel_); }

 private:
  QueuePair(const Port& port, Role role) : port_(port), role_(role) {}
  struct Channel {
    ibv_comp_channel* verbs = nullptr;
    FieldDescriptor descriptor;
  };
  Status make_objects(std::uint32_t ring_bytes);
  Status make_channel(Channel* channel);
  void destroy(Channel* channel) noexcept;
  bool heed(const Channel& channel) noexcept;
  Status make_queue_pair();
  bool post_remote(ibv_wr_opcode opcode, ibv_sge piece, std::uint64_t address, std::uint32_t key,
                   std::uint64_t id) noexcept;
  Result<RegionKeys> register_memory(std::byte* start, std::size_t bytes, int access);
  Status change(ibv_qp_attr& attributes, int mask, const char* to);
  Status refused(const char* what, int error) const;
  std::size_t slot_bytes() const noexcept { return memory_.ring_bytes() / kSlots; }

  const Port port_;
  const Role role_;
  ibv_pd* pd_ = nullptr;
  Channel channel_;
  Channel requests_channel_;  // Of an end that reads.
  ibv_cq* requests_ = nullptr;
  ibv_cq* receives_ = nullptr;
  ibv_qp* qp_ = nullptr;
  Memory memory_;
  Regions regions_;
  std::uint32_t inline_bytes_max_ = 0;
  std::uint32_t step_bytes_ = 0;
  Offer offer_;
  Offer theirs_;
};

}  // namespace gpurun::transport::rdma
