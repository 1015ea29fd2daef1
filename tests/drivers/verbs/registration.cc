// Protection domains and memory regions of the verbs double.
#include "tests/drivers/verbs/registration.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "tests/drivers/verbs/counters.h"
#include "tests/drivers/verbs/responder.h"

namespace gpurun::verbs_double {
namespace {

// nullptr unless the region exists, belongs to the QP's protection domain, has the access, and
// contains the range.
std::byte* memory_of(const Qp& qp, std::uint32_t key, std::uint64_t address, std::uint64_t length,
                     unsigned access) {
  const auto found = nic().regions.find(key);
  if (found == nic().regions.end()) return nullptr;
  const Mr& region = *found->second;
  if (region.pd != qp.pd || (region.access & access) != access) return nullptr;
  if (address < region.first || address - region.first > region.length ||
      length > region.length - (address - region.first)) {
    return nullptr;
  }
  return static_cast<std::byte*>(region.addr) + (address - region.first);
}

std::byte* own_memory(const ibv_sge& piece) {
  const Mr& region = *nic().regions.at(piece.lkey);
  return static_cast<std::byte*>(region.addr) + (piece.addr - region.first);
}

ibv_mr* refuse(int error) {
  errno = error;
  return nullptr;
}

int fault(FaultAction action) {
  const Lock lock(nic().mutex);
  return nic().faults.registration_error(action);
}

ibv_mr* add_region(ibv_pd* visible, void* address, std::size_t length, std::uint64_t first,
                   unsigned access) {
  constexpr unsigned kRemoteChanges = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
  const Lock lock(nic().mutex);
  if (visible->context->cmd_fd < 0) return refuse(EBADF);
  if (length == 0) return refuse(EINVAL);
  if ((access & kRemoteChanges) != 0 && (access & IBV_ACCESS_LOCAL_WRITE) == 0) {
    return refuse(EINVAL);
  }
  if ((access & IBV_ACCESS_ON_DEMAND) != 0 && !device_of(visible->context).settings.odp) {
    return refuse(EOPNOTSUPP);
  }
  const auto limit = nic().faults.memlock();
  if (limit && (length > *limit || nic().registered > *limit - length)) {
    return refuse(*limit == 0 ? EPERM : ENOMEM);
  }
  std::uint32_t key = 0;
  while (key == 0 || nic().regions.count(key) != 0) {
    key = static_cast<std::uint32_t>(nic().random());
  }
  auto* region = new Mr{};
  region->context = visible->context;
  region->pd = visible;
  region->addr = address;
  region->length = length;
  region->handle = region->lkey = region->rkey = key;
  region->first = first;
  region->access = access;
  nic().regions.emplace(key, region);
  nic().registered += length;
  ++static_cast<Pd*>(visible)->users;
  count(&verbs_double_counts::registrations);
  count(&verbs_double_counts::registered_bytes, length);
  return region;
}

}  // namespace

bool pieces_allowed(const Qp& qp, const std::vector<ibv_sge>& pieces, unsigned access) {
  for (const ibv_sge& piece : pieces) {
    if (piece.length != 0 &&
        memory_of(qp, piece.lkey, piece.addr, piece.length, access) == nullptr) {
      return false;
    }
  }
  return true;
}

std::uint64_t length_of(const std::vector<ibv_sge>& pieces) {
  std::uint64_t length = 0;
  for (const ibv_sge& piece : pieces) length += piece.length;
  return length;
}

Bytes gather(const std::vector<ibv_sge>& pieces) {
  Bytes data;
  data.reserve(length_of(pieces));
  for (const ibv_sge& piece : pieces) {
    if (piece.length == 0) continue;
    const std::byte* from = own_memory(piece);
    data.insert(data.end(), from, from + piece.length);
  }
  count(&verbs_double_counts::gathered_bytes, data.size());
  return data;
}

void scatter(const std::vector<ibv_sge>& pieces, const Bytes& data) {
  std::size_t done = 0;
  for (const ibv_sge& piece : pieces) {
    const std::size_t size = std::min<std::size_t>(piece.length, data.size() - done);
    if (size == 0) continue;
    std::memcpy(own_memory(piece), data.data() + done, size);
    done += size;
  }
  count(&verbs_double_counts::placed_bytes, done);
}

void place_reads(Qp& qp) {
  std::deque<ReadPlacement> late;
  for (ReadPlacement& placement : qp.read_placements) {
    if (placement.late > 0) {
      --placement.late;
      late.push_back(std::move(placement));
    } else if (pieces_allowed(qp, placement.pieces, IBV_ACCESS_LOCAL_WRITE)) {
      scatter(placement.pieces, placement.data);
    }
  }
  qp.read_placements = std::move(late);
}

std::byte* remote_memory(const Qp& qp, std::uint32_t key, std::uint64_t address,
                         std::uint64_t length, unsigned access) {
  if ((qp.set.qp_access_flags & access) != access) return nullptr;
  return memory_of(qp, key, address, length, access);
}

}  // namespace gpurun::verbs_double

using namespace gpurun::verbs_double;

ibv_pd* ibv_alloc_pd(ibv_context* context) {
  auto* pd = new Pd{};
  pd->context = context;
  return pd;
}

int ibv_dealloc_pd(ibv_pd* visible) {
  auto* pd = static_cast<Pd*>(visible);
  const Lock lock(nic().mutex);
  if (pd->users != 0) return EBUSY;
  delete pd;
  return 0;
}

#undef ibv_reg_mr
ibv_mr* ibv_reg_mr(ibv_pd* pd, void* address, std::size_t length, int access) {
  if (const int error = fault(FaultAction::kMrFails); error != 0) return refuse(error);
  return add_region(pd, address, length, reinterpret_cast<std::uint64_t>(address),
                    static_cast<unsigned>(access));
}

ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* address, std::size_t length, std::uint64_t first,
                         unsigned access) {
  // <infiniband/verbs.h> calls this one for ibv_reg_mr, too.
  if (const int error = fault(FaultAction::kMrFails); error != 0) return refuse(error);
  // A device ignores the optional flags that it does not know (ibv_reg_mr(3),
  // IBV_ACCESS_RELAXED_ORDERING).
  return add_region(pd, address, length, first,
                    access & ~static_cast<unsigned>(IBV_ACCESS_OPTIONAL_RANGE));
}

#undef ibv_reg_mr_iova
ibv_mr* ibv_reg_mr_iova(ibv_pd* pd, void* address, std::size_t length, std::uint64_t first,
                        int access) {
  return add_region(pd, address, length, first, static_cast<unsigned>(access));
}

// A dma-buf stands for the memory that the exporter gave, so the double needs its pages only.
ibv_mr* ibv_reg_dmabuf_mr(ibv_pd* pd, std::uint64_t offset, std::size_t length, std::uint64_t first,
                          int file, int access) {
  if (!device_of(pd->context).settings.dma_buf) return refuse(EOPNOTSUPP);
  if (const int error = fault(FaultAction::kDmaBufFails); error != 0) return refuse(error);
  const off_t start = lseek(file, 0, SEEK_CUR);
  // The kernel refuses what lies differently in its page (ib_umem_dmabuf_get).
  if (start < 0 || length == 0 || (first - offset) % 4096 != 0) {
    return refuse(start < 0 ? EBADF : EINVAL);
  }
  const std::size_t lead = offset % 4096;
  void* const mapping = mmap(nullptr, length + lead, PROT_READ | PROT_WRITE, MAP_SHARED, file,
                             start + static_cast<off_t>(offset - lead));
  if (mapping == MAP_FAILED) return nullptr;
  ibv_mr* const visible = add_region(pd, static_cast<std::byte*>(mapping) + lead, length, first,
                                     static_cast<unsigned>(access));
  if (visible == nullptr) {
    const int error = errno;
    munmap(mapping, length + lead);
    return refuse(error);
  }
  static_cast<Mr*>(visible)->is_dma_buf = true;
  count(&verbs_double_counts::dma_bufs);
  return visible;
}

int ibv_dereg_mr(ibv_mr* visible) {
  auto* region = static_cast<Mr*>(visible);
  const Lock lock(nic().mutex);
  for (const auto& [number, qp] : nic().qps) {
    if (qp->pd == region->pd) place_all(*qp);
  }
  nic().regions.erase(region->lkey);
  nic().registered -= region->length;
  --static_cast<Pd*>(region->pd)->users;
  count(&verbs_double_counts::deregistrations);
  if (region->is_dma_buf) {
    const std::size_t lead = reinterpret_cast<std::uint64_t>(region->addr) % 4096;
    munmap(static_cast<std::byte*>(region->addr) - lead, region->length + lead);
  }
  delete region;
  return 0;
}
