// Control: records of one to thirteen bytes.
#include "transport/carrier/control.h"

namespace gpurun::transport::carrier {
namespace {

constexpr std::size_t kEntryBytes = 4;
constexpr std::size_t kLengthBytes = 4;
constexpr std::size_t kCountBytes = 8;

std::size_t entry_bytes(Kind kind) { return kind == Kind::kLeave ? kEntryBytes : 0; }

std::size_t count_bytes(Kind kind) {
  switch (kind) {
    case Kind::kData:
      return kLengthBytes;
    case Kind::kLeave:
    case Kind::kEnter:
      return kCountBytes;
    case Kind::kWake:
    case Kind::kAsk:
    case Kind::kAnswer:
      break;
  }
  return 0;
}

std::size_t write_number(std::uint64_t number, std::size_t bytes, std::byte* into) noexcept {
  for (std::size_t i = 0; i < bytes; ++i) into[i] = static_cast<std::byte>(number >> (8 * i));
  return bytes;
}

std::uint64_t read_number(ByteView bytes) noexcept {
  std::uint64_t number = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    number |= std::to_integer<std::uint64_t>(bytes[i]) << (8 * i);
  }
  return number;
}

}  // namespace

std::size_t write_record(const Record& record,
                         std::array<std::byte, kRecordBytesMax>* into) noexcept {
  std::byte* const start = into->data();
  std::size_t used = write_number(static_cast<std::uint8_t>(record.kind), 1, start);
  used += write_number(record.entry, entry_bytes(record.kind), start + used);
  used += write_number(record.count, count_bytes(record.kind), start + used);
  return used;
}

std::optional<Record> read_record(ByteView bytes, std::size_t* used) noexcept {
  *used = 0;
  Record record;
  if (bytes.empty()) return record;
  const auto kind = std::to_integer<std::uint8_t>(bytes[0]);
  if (kind < static_cast<std::uint8_t>(Kind::kWake) ||
      kind > static_cast<std::uint8_t>(Kind::kAnswer)) {
    return std::nullopt;
  }
  record.kind = static_cast<Kind>(kind);
  const std::size_t entry = entry_bytes(record.kind);
  const std::size_t count = count_bytes(record.kind);
  if (bytes.size() < 1 + entry + count) return record;
  record.entry = static_cast<std::uint32_t>(read_number(bytes.subspan(1, entry)));
  record.count = read_number(bytes.subspan(1 + entry, count));
  if (record.kind == Kind::kData && (record.count == 0 || record.count > kDataBytesMax)) {
    return std::nullopt;
  }
  *used = 1 + entry + count;
  return record;
}

}  // namespace gpurun::transport::carrier
