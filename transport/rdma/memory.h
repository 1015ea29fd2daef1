// Memory: the two rings of an RDMA connection, registered with a device.
//
// Each ring is mapped twice in a row, so that each piece of it is in one run, also across its end.
// The other end may write the ring of incoming bytes, and nothing else.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

#include "base/result.h"

namespace gpurun::transport::rdma {

// The error for memory that the device does not register, with errno `error`.
Status registration_refused(std::size_t bytes, int error);

class Memory {
 public:
  Memory() = default;  // Empty.
  Memory(Memory&& other) noexcept;
  Memory& operator=(Memory&& other) noexcept;
  ~Memory();

  // `ring_bytes`: a power of two, of whole pages.
  //   kResourceExhausted  the device refuses it. When a limit of locked memory is the reason, the
  //                       message says how to raise it.
  static Result<Memory> make(ibv_pd* pd, std::size_t ring_bytes);

  std::byte* in() const noexcept { return start_; }
  std::byte* out() const noexcept { return start_ + 2 * ring_bytes_; }  // The sender's copy.
  std::size_t ring_bytes() const noexcept { return ring_bytes_; }
  std::uint32_t in_lkey() const noexcept { return in_region_->lkey; }
  std::uint32_t in_rkey() const noexcept { return in_region_->rkey; }
  std::uint32_t out_lkey() const noexcept { return out_region_->lkey; }

 private:
  Status map();
  Status enroll(ibv_pd* pd);

  std::byte* start_ = nullptr;
  std::size_t ring_bytes_ = 0;
  ibv_mr* in_region_ = nullptr;
  ibv_mr* out_region_ = nullptr;
};

}  // namespace gpurun::transport::rdma
