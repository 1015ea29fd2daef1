// CommandLog: every entry's first word is its length once it is committed, and 0 before.
#include "client/log/command_log.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

namespace gpurun::client {
namespace {

// The first 8 bytes of every entry. Records and padding both have them.
struct EntryHead {
  std::uint32_t bytes;
  std::uint16_t opcode;
  std::uint8_t form;  // 0: padding to the ring's end.
  std::uint8_t order;
};
static_assert(sizeof(EntryHead) == 8 && offsetof(protocol::RecordHeader, form) == 6);

std::atomic_ref<std::uint32_t> entry_bytes(std::byte* entry) noexcept {
  return std::atomic_ref<std::uint32_t>(*reinterpret_cast<std::uint32_t*>(entry));
}

std::uint8_t entry_form(const std::byte* entry) noexcept {
  return static_cast<std::uint8_t>(entry[offsetof(protocol::RecordHeader, form)]);
}

std::uint64_t entry_sequence(const std::byte* entry) noexcept {
  std::uint64_t sequence;
  std::memcpy(&sequence, entry + offsetof(protocol::RecordHeader, sequence), sizeof sequence);
  return sequence;
}

// kLookBytes: how often is_far() looks, in bytes. kWarmBytes: the room before the first
// acknowledgement of later records, beside twice the bytes that were under way lately. It fits the
// largest record behind bytes that the worker does not acknowledge at once.
constexpr std::uint64_t kLookBytes = std::uint64_t{64} << 10;
constexpr std::uint64_t kWarmBytes = std::uint64_t{384} << 10;
static_assert(kWarmBytes >= limits::kRecordBytesMax + (std::uint64_t{128} << 10));

}  // namespace

CommandLog::CommandLog(std::size_t byte_count) : ring_bytes_(byte_count) {
  void* memory =
      mmap(nullptr, byte_count, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory != MAP_FAILED) ring_ = static_cast<std::byte*>(memory);
}

void CommandLog::warm() const noexcept {
#ifdef MADV_POPULATE_WRITE
  static_cast<void>(madvise(ring_, std::min<std::uint64_t>(2 * kWarmBytes, ring_bytes_),
                            MADV_POPULATE_WRITE));  // Linux 5.14.
#endif
}

CommandLog::~CommandLog() {
  if (ring_ != nullptr) munmap(ring_, ring_bytes_);
}

bool CommandLog::is_far(std::uint64_t position, std::uint32_t bytes) noexcept {
  acknowledged_seen_ = acknowledged_.load(std::memory_order_acquire);
  std::uint64_t under_way = position - acknowledged_seen_;
  if (acknowledged_seen_ <= padding_start_) under_way -= padding_end_ - padding_start_;
  most_under_way_ = std::max(under_way, most_under_way_ - most_under_way_ / 8);
  return position % ring_bytes_ >= under_way + 2 * most_under_way_ + kWarmBytes + bytes;
}

CommandLog::Slot CommandLog::reserve(std::uint32_t bytes, const Marks& marks) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::uint64_t position = tail_.load(std::memory_order_relaxed);
  const std::uint64_t to_end = ring_bytes_ - position % ring_bytes_;
  const bool look = (position + bytes) / kLookBytes != position / kLookBytes;
  const std::uint64_t padding = to_end < bytes || (look && is_far(position, bytes)) ? to_end : 0;
  const std::uint64_t end = position + padding + bytes;
  if (end - acknowledged_seen_ > ring_bytes_) {
    acknowledged_seen_ = acknowledged_.load(std::memory_order_acquire);
    if (end - acknowledged_seen_ > ring_bytes_) return {};
  }
  if (padding != 0) {
    EntryHead head{0, 0, 0, 0};
    std::memcpy(at(position), &head, sizeof head);
    entry_bytes(at(position)).store(static_cast<std::uint32_t>(padding), std::memory_order_release);
    padding_start_ = position;
    padding_end_ = position += padding;
  }
  std::byte* start = at(position);
  entry_bytes(start).store(0, std::memory_order_relaxed);
  const std::uint64_t sequence = last_sequence_.load(std::memory_order_relaxed) + 1;
  last_sequence_.store(sequence, std::memory_order_relaxed);
  for (std::atomic<std::uint64_t>* mark : marks) {
    if (mark != nullptr) mark->store(sequence, std::memory_order_release);
  }
  tail_.store(end, std::memory_order_release);
  return {start, bytes, sequence};
}

void CommandLog::commit(const Slot& slot) noexcept {
  entry_bytes(slot.start).store(slot.bytes, std::memory_order_release);
  // Sequentially consistent together with the sending role: see something_to_send().
  committed_.fetch_add(1, std::memory_order_seq_cst);
}

bool CommandLog::something_to_send() const noexcept {
  if (committed_.load(std::memory_order_seq_cst) == sent_records_.load(std::memory_order_acquire)) {
    return false;
  }
  std::uint64_t position = sent_.load(std::memory_order_acquire);
  const std::uint64_t tail = tail_.load(std::memory_order_acquire);
  while (position < tail) {
    const std::uint32_t bytes = entry_bytes(at(position)).load(std::memory_order_acquire);
    if (bytes == 0) return false;  // That thread checks the role after its commit.
    if (entry_form(at(position)) != 0) return true;
    position += bytes;
  }
  return false;
}

CommandLog::Batch CommandLog::collect(std::size_t bytes_max) noexcept {
  Batch batch;
  std::uint64_t position = sent_.load(std::memory_order_relaxed);
  const std::uint64_t tail = tail_.load(std::memory_order_acquire);
  std::byte* part_start = nullptr;
  std::size_t part_bytes = 0;
  std::uint64_t records = 0;
  const auto close_part = [&] {
    if (part_bytes != 0) batch.parts[batch.part_count++] = ByteView(part_start, part_bytes);
    part_bytes = 0;
  };
  while (position < tail) {
    std::byte* entry = at(position);
    const std::uint32_t bytes = entry_bytes(entry).load(std::memory_order_acquire);
    if (bytes == 0) break;
    if (entry_form(entry) == 0) {
      close_part();
      position += bytes;
      continue;
    }
    if (batch.bytes != 0 && batch.bytes + bytes > bytes_max) break;
    if (part_bytes != 0 && entry != part_start + part_bytes) {  // Wrapped without padding.
      close_part();
    }
    if (part_bytes == 0) {
      if (batch.part_count == 2) break;
      part_start = entry;
    }
    part_bytes += bytes;
    batch.bytes += bytes;
    batch.last_sequence = entry_sequence(entry);
    if (records++ == 0) batch.first_sequence = batch.last_sequence;
    position += bytes;
  }
  close_part();
  if (records != 0) {
    sent_sequence_.store(batch.last_sequence, std::memory_order_release);
    sent_records_.store(sent_records_.load(std::memory_order_relaxed) + records,
                        std::memory_order_release);
    sent_.store(position, std::memory_order_release);
  }
  return batch;
}

bool CommandLog::release_through(std::uint64_t sequence) noexcept {
  (void)batches_read_.load(std::memory_order_acquire);
  if (sequence > sent_sequence_.load(std::memory_order_acquire)) return false;
  const std::uint64_t sent = sent_.load(std::memory_order_acquire);
  std::uint64_t position = acknowledged_.load(std::memory_order_relaxed);
  while (position < sent) {
    std::byte* entry = at(position);
    if (entry_form(entry) != 0 && entry_sequence(entry) > sequence) break;
    position += entry_bytes(entry).load(std::memory_order_acquire);
  }
  acknowledged_.store(position, std::memory_order_release);
  return true;
}

}  // namespace gpurun::client
