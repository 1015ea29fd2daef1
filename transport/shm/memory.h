// SharedMemory: the two rings of a connection, in memory that both of its processes map. One
// process makes the memory and offers it over their socket, and the other process takes it.
//
// The memory is a memory file (memfd_create(2)) that is sealed against shrinking, so that no access
// to it can fail later. A child of fork(2) does not inherit the mapping.
#pragma once

#include <cstddef>

#include "base/deadline.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "transport/shm/ring.h"
#include "transport/transport.h"

namespace gpurun::transport::shm {

// The default size of each ring. It is small enough that the bytes which collect while a reader
// sleeps stay in its processor's cache.
inline constexpr std::size_t kRingBytes = std::size_t{2} << 20;
inline constexpr std::size_t kRingBytesMin = std::size_t{4} << 10;
inline constexpr std::size_t kRingBytesMax = kRingBytes;  // Also the bound for the offer of an
                                                          // untrusted peer.

class SharedMemory {
 public:
  SharedMemory() = default;  // Empty: no memory.
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  ~SharedMemory();

  bool is_there() const noexcept { return start_ != nullptr; }
  // From the process that offered it to the process that took it, and back.
  Ring to_taker() const noexcept { return ring(0); }
  Ring to_offerer() const noexcept { return ring(1); }

 private:
  friend Result<SharedMemory> map(const UniqueFd& file, std::size_t ring_bytes);
  Ring ring(std::size_t index) const noexcept;

  std::byte* start_ = nullptr;
  std::size_t ring_bytes_ = 0;
};

// Makes memory and sends it over `socket`, a local socket ("unix:NAME"), in order behind the bytes
// that were sent before. Each ring has `ring_bytes`, a power of two from kRingBytesMin to
// kRingBytesMax. When this process cannot have such memory, returns empty memory, tells the peer,
// and sets `*why_none` to the reason.
//   kDeadline, kPeerGone  the offer may not have been sent.
Result<SharedMemory> offer(Connection& socket, std::size_t ring_bytes, Deadline deadline,
                           std::string* why_none);

// True when `socket` is a local socket (unix(7)).
bool is_local(const Connection& socket);

// Sends a memory file of the caller's own over `socket`, in place of an offer of rings. It is
// sealed against a change of its size. The transport does not map it. Errors as offer().
Status offer_file(Connection& socket, int file, Deadline deadline);

// Takes the memory that the other end offers as the next message on `socket`. Returns empty memory
// when the other end had none to offer. If the other end may offer a file of its own instead, pass
// `file`: it is then set, and the memory is empty.
//   kProtocol             not such an offer, or memory that the peer could shrink later.
//   kResourceExhausted    the memory cannot be mapped here.
//   kDeadline, kPeerGone
Result<SharedMemory> take_offer(Connection& socket, Deadline deadline, UniqueFd* file = nullptr);

}  // namespace gpurun::transport::shm
