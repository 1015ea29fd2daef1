// SharedMemory: the two rings of a connection, in memory that its two processes map; and how they
// come to have it: one makes it and offers it over their socket, the other takes it.
//
// It is a memory file (memfd_create(2)) sealed against shrinking, so that nobody's access to it can
// fail later. A child of fork(2) does not have it.
#pragma once

#include <cstddef>

#include "base/deadline.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "transport/shm/ring.h"
#include "transport/transport.h"

namespace gpurun::transport::shm {

// Of each ring, where nothing else is asked for: what a reader that has slept has to catch up with
// stays in its processor's cache.
inline constexpr std::size_t kRingBytes = std::size_t{2} << 20;
inline constexpr std::size_t kRingBytesMin = std::size_t{4} << 10;
inline constexpr std::size_t kRingBytesMax = kRingBytes;  // A stranger's, too.

class SharedMemory {
 public:
  SharedMemory() = default;  // None.
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  ~SharedMemory();

  bool is_there() const noexcept { return start_ != nullptr; }
  // Of who offered it to who took it, and back.
  Ring to_taker() const noexcept { return ring(0); }
  Ring to_offerer() const noexcept { return ring(1); }

 private:
  friend Result<SharedMemory> map(const UniqueFd& file, std::size_t ring_bytes);
  Ring ring(std::size_t index) const noexcept;

  std::byte* start_ = nullptr;
  std::size_t ring_bytes_ = 0;
};

// Makes memory and sends it over `socket`, a local one ("unix:NAME"), where it stands in line with
// the bytes that were sent before. Rings of `ring_bytes`, a power of two from kRingBytesMin to
// kRingBytesMax.
// None, which is said there as well: this process can have no such memory; `*why_none` says why.
//   kDeadline, kPeerGone  it may not have been sent.
Result<SharedMemory> offer(Connection& socket, std::size_t ring_bytes, Deadline deadline,
                           std::string* why_none);

// `socket` is a local one.
bool is_local(const Connection& socket);

// Takes what the other end offers as the next on `socket`. None: it had none to offer.
//   kProtocol           it is no such offer, or memory that could shrink under us.
//   kResourceExhausted  it cannot be mapped here.
//   kDeadline, kPeerGone
Result<SharedMemory> take_offer(Connection& socket, Deadline deadline);

}  // namespace gpurun::transport::shm
