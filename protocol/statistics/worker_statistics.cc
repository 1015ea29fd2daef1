// Worker statistics: encoded as totals, the number of rows, and the rows.
#include "protocol/statistics/worker_statistics.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>

namespace gpurun::protocol {
namespace {

struct Head {
  WorkerTotals totals;
  std::uint64_t row_count = 0;
};
static_assert(sizeof(Head) == sizeof(WorkerTotals) + 8);

Status wrong(const std::string& what) {
  return Status(Code::kProtocol, "the worker's statistics: " + what);
}

}  // namespace

std::size_t size_class(std::uint64_t size) noexcept {
  const auto width = static_cast<std::size_t>(std::bit_width(size));
  return std::min(width == 0 ? width : width - 1, kSizeClasses - 1);
}

Bytes encode(const WorkerStatistics& statistics) {
  Head head;
  head.totals = statistics.totals;
  head.row_count = std::min(statistics.rows.size(), kWorkerRowsMax);
  const std::size_t row_bytes = head.row_count * sizeof(WorkerRow);
  Bytes bytes(sizeof head + row_bytes);
  std::memcpy(bytes.data(), &head, sizeof head);
  if (row_bytes != 0) std::memcpy(bytes.data() + sizeof head, statistics.rows.data(), row_bytes);
  return bytes;
}

Result<WorkerStatistics> parse_worker_statistics(ByteView bytes) {
  Head head;
  if (bytes.size() < sizeof head) return wrong("only " + std::to_string(bytes.size()) + " bytes");
  std::memcpy(&head, bytes.data(), sizeof head);
  if (head.row_count > kWorkerRowsMax) {
    return wrong(std::to_string(head.row_count) + " functions");
  }
  if (bytes.size() != sizeof head + head.row_count * sizeof(WorkerRow)) {
    return wrong(std::to_string(bytes.size()) + " bytes for " + std::to_string(head.row_count) +
                 " functions");
  }
  WorkerStatistics statistics;
  statistics.totals = head.totals;
  statistics.rows.resize(head.row_count);
  if (head.row_count != 0) {
    std::memcpy(statistics.rows.data(), bytes.data() + sizeof head, bytes.size() - sizeof head);
  }
  for (std::size_t i = 1; i < statistics.rows.size(); ++i) {
    if (statistics.rows[i].opcode <= statistics.rows[i - 1].opcode) {
      return wrong("functions out of order");
    }
  }
  return statistics;
}

}  // namespace gpurun::protocol
