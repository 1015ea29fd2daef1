// HostMirror: blocks and twins by address.
#include "server/handlers/memory/host_mirror.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <memory>
#include <new>
#include <vector>

#include "driver_abi/cuda_abi.h"
#include "server/handlers/memory/host_arena.h"
#include "server/handlers/state/handler_state.h"

namespace gpurun::server {

using protocol::HostMirrorChanges;
using protocol::HostMirrorHead;
using protocol::HostMirrorRange;
using protocol::HostMirrorStep;
using protocol::MirrorSpan;

HostMirror::~HostMirror() {
  for (const auto& [address, block] : blocks_) munmap(block.twin, block.bytes);
}

bool HostMirror::add(std::uint64_t address, std::uint64_t bytes) {
  void* const twin = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (twin == MAP_FAILED) return false;
  const std::lock_guard lock(mutex_);
  blocks_[address] = {bytes, static_cast<std::byte*>(twin)};
  return true;
}

void HostMirror::remove(std::uint64_t address) {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(address);
  if (found == blocks_.end()) return;
  munmap(found->second.twin, found->second.bytes);
  blocks_.erase(found);
}

HostMirror::Blocks::iterator HostMirror::block_from(std::uint64_t address) {
  const auto next = blocks_.upper_bound(address);
  if (next == blocks_.begin()) return next;
  const auto found = std::prev(next);
  return address - found->first < found->second.bytes ? found : next;
}

MirrorSpan HostMirror::span_at(std::uint64_t address, std::uint64_t bytes) {
  const auto found = block_from(address);
  if (found == blocks_.end() || found->first > address) return {};
  const std::uint64_t offset = address - found->first;
  return {reinterpret_cast<std::byte*>(address), found->second.twin + offset, address,
          std::min(bytes, found->second.bytes - offset)};
}

int HostMirror::write(ByteView pieces, std::uint64_t place, std::uint64_t span) {
  const std::lock_guard lock(mutex_);
  bool inside = true;
  const bool sound =
      protocol::merge_pieces(pieces, [&](std::uint64_t address, std::uint64_t bytes) {
        const MirrorSpan into = span_at(address, bytes);
        inside = inside && (into.bytes != 0 || (address >= place && address - place <= span &&
                                                bytes <= span - (address - place)));
        return inside ? into : MirrorSpan();
      });
  return sound && inside ? 0 : int{CUDA_ERROR_INVALID_VALUE};
}

std::size_t HostMirror::collect(std::span<const HostMirrorRange> ranges, std::uint64_t from,
                                MutableBytes reply, std::uint64_t* next) {
  protocol::MirrorWriter changes(reply);
  std::uint64_t left = kBytesAtOnce;
  const std::lock_guard lock(mutex_);
  for (const HostMirrorRange& range : ranges) {
    const std::uint64_t end = range.address + range.bytes;
    std::uint64_t at = std::max(from, range.address);
    while (at < end) {
      const auto block = block_from(at);
      if (block == blocks_.end()) break;
      at = std::max(at, block->first);
      const std::uint64_t offset = at - block->first;
      const std::uint64_t block_end = block->first + block->second.bytes;
      if (at >= end) break;
      const std::uint64_t bytes = std::min(std::min(end, block_end) - at, left);
      const std::size_t compared = protocol::take_changes(reinterpret_cast<const std::byte*>(at),
                                                          block->second.twin + offset, at, bytes,
                                                          &changes, range.in_turn != 0);
      at += compared;
      left -= compared;
      if (compared < bytes || left == 0) {
        *next = at;
        return changes.size();
      }
    }
  }
  *next = 0;
  return changes.size();
}

std::size_t HostMirror::poll(std::span<const HostMirrorRange> ranges, MutableBytes reply) {
  protocol::MirrorWriter changes(reply);
  std::vector<MirrorSpan> spans;
  std::size_t left = protocol::kMirrorPolledBytesMax;
  const std::lock_guard lock(mutex_);
  for (const HostMirrorRange& range : ranges) {
    const MirrorSpan span = span_at(range.address, range.bytes);
    if (span.bytes == 0 || span.bytes > left) continue;
    left -= span.bytes;
    spans.push_back(span);
  }
  const bool anyway = unsettled_ >= protocol::kMirrorUnsettledMax;
  unsettled_ = protocol::take_settled_changes(spans, anyway, &changes) ? 0 : unsettled_ + 1;
  return changes.size();
}

namespace {

// The ranges of a call. Empty: they are malformed.
std::vector<HostMirrorRange> ranges_of(ByteView payload) {
  payload = payload.subspan(sizeof(HostMirrorHead));
  constexpr std::uint64_t kPart = protocol::kMirrorLineBytes - 1;
  const std::size_t count = payload.size() / sizeof(HostMirrorRange);
  if (count > protocol::kMirrorRangesMax || payload.size() % sizeof(HostMirrorRange) != 0) {
    return {};
  }
  std::vector<HostMirrorRange> ranges(count);
  if (count != 0) std::memcpy(ranges.data(), payload.data(), payload.size());
  std::uint64_t before = 0;
  for (const HostMirrorRange& range : ranges) {
    if (range.address < before || ((range.address | range.bytes) & kPart) != 0 ||
        range.address + range.bytes < range.address || range.in_turn > 1) {
      return {};
    }
    before = range.address + range.bytes;
  }
  return ranges;
}

// On a helper thread, because it may compare much memory.
int collect(Call& call) {
  HostMirrorHead head;
  std::memcpy(&head, call.payload().data(), sizeof head);
  const std::vector<HostMirrorRange> ranges = ranges_of(call.payload());
  if (ranges.empty() || head.from % protocol::kMirrorLineBytes != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  HostMirror& mirror = HandlerState::of(call).host_arena().mirror();
  // Kept, because the system takes longer for new pages than the comparison of what changes there.
  thread_local const std::unique_ptr<std::byte[]> memory(
      new (std::nothrow) std::byte[protocol::kMirrorReplyBytesMax]);
  if (memory == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  const MutableBytes reply(memory.get(), protocol::kMirrorReplyBytesMax);
  HostMirrorChanges changes;
  const MutableBytes room = reply.subspan(sizeof changes);
  const std::size_t size = head.step == HostMirrorStep::kPoll
                               ? mirror.poll(ranges, room)
                               : mirror.collect(ranges, head.from, room, &changes.next);
  std::memcpy(reply.data(), &changes, sizeof changes);
  call.set_reply(ByteView(reply).first(sizeof changes + size));
  return 0;
}

}  // namespace

CallOutcome run_host_mirror(Call& call) {
  HostMirrorHead head;
  if (call.header().form != protocol::Form::kRaw ||
      call.header().order != protocol::Order::kImmediate || call.payload().size() < sizeof head) {
    return CallOutcome::done(CUDA_ERROR_INVALID_VALUE);
  }
  std::memcpy(&head, call.payload().data(), sizeof head);
  if (head.reserved != 0) return CallOutcome::done(CUDA_ERROR_INVALID_VALUE);
  if (head.step == HostMirrorStep::kWrite) {
    return CallOutcome::done(
        HandlerState::of(call).host_arena().write(call.payload().subspan(sizeof head)));
  }
  const bool asks = head.step == HostMirrorStep::kCollect || head.step == HostMirrorStep::kPoll;
  if (!asks || !call.awaited()) {
    return CallOutcome::done(CUDA_ERROR_INVALID_VALUE);
  }
  return CallOutcome::park(&collect);
}

}  // namespace gpurun::server
