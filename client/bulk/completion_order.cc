// CompletionOrder: what waits for an earlier completion, within bounds.
#include "client/bulk/completion_order.h"

#include <string>

namespace gpurun::client {

Status CompletionOrder::note(std::uint64_t number) {
  if (has(number) || !early_.insert(number).second || early_.size() > kEarlyMax) {
    return Status(Code::kProtocol,
                  "completion " + std::to_string(number) + " comes twice or far too early");
  }
  return {};
}

bool CompletionOrder::keep(std::uint64_t number, std::uint64_t transfer, ByteView bytes) {
  const std::size_t cost = bytes.size() + kKeptBytesEach;
  if (number - through_ > kEarlyMax || kept_bytes_ + cost > kKeptBytesMax) return false;
  kept_.emplace(number, Kept{transfer, Bytes(bytes.begin(), bytes.end())});
  kept_bytes_ += cost;
  return true;
}

}  // namespace gpurun::client
