// WholePayload: one mapping for each payload, so that unwritten pages cost no memory.
#include "server/bulk/whole_payload.h"

#include <sys/mman.h>

namespace gpurun::server {

std::shared_ptr<WholePayload> WholePayload::create(std::size_t bytes) {
  void* memory = mmap(nullptr, bytes + 1, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  return std::shared_ptr<WholePayload>(new WholePayload(static_cast<std::byte*>(memory), bytes));
}

WholePayload::~WholePayload() { munmap(start_, bytes_ + 1); }

}  // namespace gpurun::server
