// ClientStreams: queries a stream's traits once, and creates per-thread streams on demand.
#include "server/worker/execution/client_streams.h"

#include "server/driver/error_numbers.h"
#include "server/worker/execution/thread_context.h"

namespace gpurun::server {
namespace {

constexpr unsigned kStreamNonBlocking = 1;  // CU_STREAM_NON_BLOCKING (cuda.h).
// Streams with remembered flags. Beyond this all are forgotten and queried again.
constexpr std::size_t kTraitsMax = 4096;

}  // namespace

IssueQueue::StreamTraits ClientStreams::traits(const protocol::RecordHeader& header) {
  IssueQueue::StreamTraits result;
  if (header.order != protocol::Order::kStream || header.stream <= protocol::kStreamPerThread)
    return result;
  if (const auto it = known_traits_.find(header.stream); it != known_traits_.end())
    return it->second;
  const HandleTable::Found found = handles_.find(header.stream, HandleKind::kStream);
  // This thread may have entered another context since, or no context, as for the release of a host
  // function.
  const HandleTable::Found context = handles_.find(header.context, HandleKind::kContext);
  unsigned flags = 0;
  if (found.result != 0 || context.result != 0 ||
      enter_context(driver_, owner_, reinterpret_cast<void*>(context.value)) != 0 ||
      driver_.cuStreamGetFlags(reinterpret_cast<void*>(found.value), &flags) != 0) {
    return result;  // The call fails when it is issued.
  }
  result.blocking = (flags & kStreamNonBlocking) == 0;
  void* home = nullptr;
  if (driver_.cuStreamGetCtx != nullptr &&
      driver_.cuStreamGetCtx(reinterpret_cast<void*>(found.value), &home) == 0) {
    result.context =
        handles_.client_handle_of(reinterpret_cast<DriverValue>(home), HandleKind::kContext);
  }
  if (known_traits_.size() >= kTraitsMax) known_traits_.clear();
  known_traits_[header.stream] = result;
  return result;
}

HandleTable::Found ClientStreams::resolve(std::uint64_t stream, std::uint32_t lane,
                                          std::uint64_t context) {
  if (stream == protocol::kStreamNull || stream == protocol::kStreamLegacy) return {0, stream};
  if (stream != protocol::kStreamPerThread) return handles_.find(stream, HandleKind::kStream);
  const std::lock_guard lock(mutex_);
  void*& made = per_thread_[{lane, context}];
  if (made == nullptr) {
    if (const int result = driver_.cuStreamCreate(&made, 0); result != 0) {
      per_thread_.erase({lane, context});
      return {result, 0};
    }
  }
  return {0, reinterpret_cast<DriverValue>(made)};
}

void ClientStreams::context_ended(std::uint64_t context) {
  const std::lock_guard lock(mutex_);
  std::erase_if(per_thread_, [&](const auto& each) { return each.first.second == context; });
}

}  // namespace gpurun::server
