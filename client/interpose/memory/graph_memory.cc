// Graph memory: its ranges, and the questions to the driver.
#include "client/interpose/memory/graph_memory.h"

#include "client/interpose/memory/device_windows.h"

namespace gpurun::client::interpose {

// It belongs to no context, as its graph does.
void keep_graph_memory(std::uint64_t address, std::uint64_t bytes, int ordinal) noexcept {
  MemoryRange range;
  range.base = address;
  range.bytes = bytes;
  range.kind = MemoryKind::kGraph;
  range.ordinal = ordinal;
  (void)add_range(range);
}

bool is_graph_memory(std::uint64_t address) noexcept {
  if (!graph_memory_exists()) return false;
  const auto range = find_range(address);
  return range.has_value() && range->kind == MemoryKind::kGraph;
}

int free_graph_memory(const EntryContext& here, CUdeviceptr address) {
  memory_returns.fetch_add(1, std::memory_order_relaxed);
  const CallSite site = here.site(protocol::Order::kOrderedHost);
  return call_row(here, opcode::cuMemFree_v2, site, {}, address);
}

int ask_for_graph_memory(const EntryContext& here, std::uint64_t address,
                         std::optional<MemoryRange>* range) {
  if (!range->has_value() || (*range)->kind != MemoryKind::kGraph) return 0;
  CUdeviceptr base = 0;
  std::size_t bytes = 0;
  std::uint64_t returns = 0;
  // The end of an executable is a return. A host function may hold it up.
  const bool waits = !here.session().host_functions_wait();
  const CallSite site = waits ? site_after_returns(here, &returns) : here.passing_site();
  const int result =
      call_row(here, opcode::cuMemGetAddressRange_v2, site, {}, &base, &bytes, address);
  const bool unknown = result == CUDA_ERROR_NOT_FOUND || result == CUDA_ERROR_INVALID_VALUE;
  if (waits && (result == 0 || result == CUDA_ERROR_NOT_FOUND)) returns_done(returns);
  if (bytes == 0) {
    if (unknown) range->reset();
    return unknown ? 0 : result;
  }
  (*range)->base = base;
  (*range)->bytes = bytes;
  return result;  // That of an earlier call, if it is a failure.
}

}  // namespace gpurun::client::interpose
