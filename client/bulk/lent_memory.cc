// LentMemory: a map of the allocations by their addresses.
#include "client/bulk/lent_memory.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/result.h"

namespace gpurun::client {
namespace {

std::uint64_t address_of(ByteView memory) {
  return reinterpret_cast<std::uintptr_t>(memory.data());
}

}  // namespace

bool LentMemory::refuse(std::string reason) {
  ++refused_.copies;
  refused_.reason = std::move(reason);
  return false;
}

// The range that contains the address, or end().
LentMemory::Ranges::iterator LentMemory::range_at(std::uint64_t address) {
  auto at = ranges_.upper_bound(address);
  if (at == ranges_.begin()) return ranges_.end();
  --at;
  return address - at->first < at->second.bytes ? at : ranges_.end();
}

// The first range with some of the memory, or a later one.
LentMemory::Ranges::iterator LentMemory::first_at(ByteView memory) {
  const auto at = range_at(address_of(memory));
  return at != ranges_.end() ? at : ranges_.lower_bound(address_of(memory));
}

void LentMemory::drop_key(Range& range) {
  if (!range.key.has_value()) return;
  remote_->take_back(*range.key);
  bytes_ -= range.bytes;
  range.key.reset();
}

void LentMemory::erase(Ranges::iterator at) {
  drop_key(at->second);
  ranges_.erase(at);
}

void LentMemory::bar(ByteView memory, bool keys_too) {
  constexpr const char* kWhy = "the device reaches the memory";
  if (remote_ == nullptr || memory.empty()) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  const std::uint64_t end = address_of(memory) + memory.size();
  auto at = first_at(memory);
  if (at == ranges_.end() || at->first >= end) {
    ranges_.emplace(address_of(memory), Range{memory.size(), std::nullopt, kWhy, true});
    return;
  }
  for (; at != ranges_.end() && at->first < end; ++at) {
    at->second.barred = true;
    at->second.why = kWhy;
    if (keys_too) drop_key(at->second);
  }
}

void LentMemory::take_back_all() {
  while (!ranges_.empty()) erase(ranges_.begin());
}

bool LentMemory::works() {
  const bool works = !stopped_ && remote_->works();
  if (!works) take_back_all();
  return works;
}

void LentMemory::stop() {
  if (remote_ == nullptr) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  stopped_ = true;
  take_back_all();
}

bool LentMemory::lend(ByteView allocation) {
  if (remote_ == nullptr || allocation.empty()) return false;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!works()) {
    if (!stopped_) return refuse("RDMA has failed");
    return refuse(right_ == Right::kRead ? "the server could not read an earlier copy"
                                         : "the server could not write an earlier copy");
  }
  if (const auto known = range_at(address_of(allocation)); known != ranges_.end()) {
    const std::uint64_t end = address_of(allocation) + allocation.size();
    const bool whole = end <= known->first + known->second.bytes;
    if (whole && known->second.key.has_value() && !known->second.barred) return true;
    return refuse(whole ? known->second.why : "the memory is lent in part");
  }
  const auto has_key = [](const auto& each) { return each.second.key.has_value(); };
  if (ranges_.size() >= kRangesMax && std::count_if(ranges_.begin(), ranges_.end(), has_key) >=
                                          static_cast<std::ptrdiff_t>(kRangesMax)) {
    return refuse("too many allocations are lent");
  }
  if (allocation.size() > kBytesMax - bytes_) return refuse("too many bytes are lent");
  Range range;
  range.bytes = allocation.size();
  auto* const start = const_cast<std::byte*>(allocation.data());
  const Result<std::uint32_t> key = right_ == Right::kRead
                                        ? remote_->lend(allocation)
                                        : remote_->lend_for_writing({start, allocation.size()});
  if (key.ok()) {
    range.key = *key;
    bytes_ += range.bytes;
  } else {
    range.why = key.status().message();
  }
  const bool lent = key.ok();
  const std::string why = range.why;
  ranges_.emplace(address_of(allocation), std::move(range));
  return lent || refuse(why);
}

std::optional<std::uint32_t> LentMemory::key_of(ByteView memory) {
  if (remote_ == nullptr || memory.empty()) return std::nullopt;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!works()) return std::nullopt;
  const auto at = range_at(address_of(memory));
  if (at == ranges_.end() || memory.size() > at->second.bytes - (address_of(memory) - at->first)) {
    return std::nullopt;
  }
  return at->second.barred ? std::nullopt : at->second.key;
}

void LentMemory::take_back(ByteView memory) {
  if (remote_ == nullptr || memory.empty()) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  const std::uint64_t end = address_of(memory) + memory.size();
  auto at = first_at(memory);
  while (at != ranges_.end() && at->first < end) {
    const auto each = at++;
    erase(each);
  }
}

LentMemory::Refused LentMemory::refused() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return refused_;
}

}  // namespace gpurun::client
