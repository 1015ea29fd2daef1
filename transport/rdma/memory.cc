// Memory: one memory file and two registrations for each connection.
#include "transport/rdma/memory.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

#include "base/memory_file.h"
#include "base/unique_fd.h"

namespace gpurun::transport::rdma {

Status registration_refused(std::size_t bytes, int error) {
  std::string why = "the device does not register " + std::to_string(bytes >> 10) +
                    " KiB: " + std::generic_category().message(error);
  rlimit limit = {};
  if ((error == ENOMEM || error == EPERM) && getrlimit(RLIMIT_MEMLOCK, &limit) == 0 &&
      limit.rlim_cur != RLIM_INFINITY) {
    why += ". Locked memory is limited to " + std::to_string(limit.rlim_cur >> 10) +
           " KiB: raise it with 'ulimit -l', LimitMEMLOCK= or --ulimit memlock=-1";
  }
  return Status(Code::kResourceExhausted, why);
}

Memory::Memory(Memory&& other) noexcept
    : start_(std::exchange(other.start_, nullptr)),
      ring_bytes_(std::exchange(other.ring_bytes_, 0)),
      in_region_(std::exchange(other.in_region_, nullptr)),
      out_region_(std::exchange(other.out_region_, nullptr)) {}

Memory& Memory::operator=(Memory&& other) noexcept {
  std::swap(start_, other.start_);
  std::swap(ring_bytes_, other.ring_bytes_);
  std::swap(in_region_, other.in_region_);
  std::swap(out_region_, other.out_region_);
  return *this;
}

Memory::~Memory() {
  if (in_region_ != nullptr) ibv_dereg_mr(in_region_);
  if (out_region_ != nullptr) ibv_dereg_mr(out_region_);
  if (start_ != nullptr) munmap(start_, 4 * ring_bytes_);
}

Status Memory::map() {
  Result<UniqueFd> file = create_memory_file("gpurun-rdma");
  if (!file.ok()) return file.status();
  GPURUN_RETURN_IF_ERROR(size_memory_file(file->get(), 2 * ring_bytes_));
  const std::size_t bytes = 4 * ring_bytes_;
  void* const place = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (place == MAP_FAILED) return Status::from_errno(errno, "addresses of an RDMA connection");
  start_ = static_cast<std::byte*>(place);
  for (std::size_t part = 0; part < 4; ++part) {
    const auto offset = static_cast<off_t>(part / 2 * ring_bytes_);
    if (mmap(start_ + part * ring_bytes_, ring_bytes_, PROT_READ | PROT_WRITE,
             MAP_SHARED | MAP_FIXED, file->get(), offset) == MAP_FAILED) {
      return Status::from_errno(errno, "memory of an RDMA connection");
    }
  }
  // A child of fork(2) would share it with this process's device.
  static_cast<void>(madvise(start_, bytes, MADV_DONTFORK));
  return {};
}

Status Memory::enroll(ibv_pd* pd) {
  const std::size_t bytes = 2 * ring_bytes_;
  in_region_ = ibv_reg_mr(pd, in(), bytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  if (in_region_ == nullptr) return registration_refused(bytes, errno);
  out_region_ = ibv_reg_mr(pd, out(), bytes, 0);
  if (out_region_ == nullptr) return registration_refused(bytes, errno);
  return {};
}

Result<Memory> Memory::make(ibv_pd* pd, std::size_t ring_bytes) {
  Memory memory;
  memory.ring_bytes_ = ring_bytes;
  GPURUN_RETURN_IF_ERROR(memory.map());
  GPURUN_RETURN_IF_ERROR(memory.enroll(pd));
  return memory;
}

}  // namespace gpurun::transport::rdma
