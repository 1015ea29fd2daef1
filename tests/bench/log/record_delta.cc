// Both ends of the delta. The decoder trusts nothing: distances, sizes and words must lie within
// its data.
#include "tests/bench/log/record_delta.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "protocol/log/record.h"

namespace gpurun::bench {
namespace {

using protocol::RecordHeader;

constexpr std::size_t kWord = sizeof(std::uint64_t);
constexpr std::size_t kSequenceWord = offsetof(RecordHeader, sequence) / kWord;

std::uint64_t word(const std::byte* from) noexcept {
  std::uint64_t value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

std::size_t map_bytes(std::size_t record_bytes) noexcept { return (record_bytes / kWord + 7) / 8; }

// The key is size, call and form. A launch's kernel is part of the key, because otherwise a loop of
// launches of equal size would look like one launch.
std::uint64_t alike(const std::byte* record) noexcept {
  constexpr std::uint64_t kMix = 0x9E3779B97F4A7C15;
  std::uint64_t mixed = word(record) * kMix;
  const auto form =
      static_cast<protocol::Form>(std::to_integer<int>(record[offsetof(RecordHeader, form)]));
  if (form == protocol::Form::kLaunch) {
    mixed = (mixed ^ word(record + sizeof(RecordHeader)) ^ (mixed >> 29)) * kMix;
  }
  return mixed;
}

}  // namespace

std::size_t DeltaEncoder::find(const NewestRecords::Entry& entry) noexcept {
  const auto fits = [this, &entry](std::size_t back) {
    const NewestRecords::Entry* found =
        back == 0 || back > kDeltaBackMax ? nullptr : newest_.back(back);
    return found != nullptr && found->alike == entry.alike && found->bytes == entry.bytes;
  };
  const std::size_t own = newest_.total() + 1;
  const NewestRecords::Entry* before = newest_.back(1);
  const std::uint64_t pair = entry.alike ^ std::rotl(before == nullptr ? 0 : before->alike, 7);
  std::size_t& last = last_[entry.alike >> 54];
  std::size_t& last_of_pair = last_of_pair_[pair >> 54];
  std::size_t back = 0;
  for (const std::size_t candidate : {turn_, own - last_of_pair, own - last}) {
    if (fits(candidate)) {
      back = candidate;
      break;
    }
  }
  last = last_of_pair = own;
  if (back != 0) turn_ = back;
  return back;
}

std::size_t DeltaEncoder::encode(ByteView records, std::byte* out) noexcept {
  std::byte* to = out;
  const std::byte* end = records.data() + records.size();
  for (const std::byte* record = records.data(); record < end;) {
    NewestRecords::Entry entry{record, 0, alike(record)};
    std::memcpy(&entry.bytes, record, sizeof entry.bytes);
    const std::size_t back = entry.bytes <= kDeltaRecordBytesMax ? find(entry) : 0;
    *to++ = static_cast<std::byte>(back);
    if (back == 0) {
      std::memcpy(to, record, entry.bytes);
      to += entry.bytes;
    } else {
      const std::byte* earlier = newest_.back(back)->start;
      std::byte* map = to;
      to += map_bytes(entry.bytes);
      const std::size_t words = entry.bytes / kWord;
      for (std::size_t first = 0; first < words; first += 8) {
        unsigned changed = 0;
        const std::size_t count = std::min<std::size_t>(8, words - first);
        for (std::size_t i = 0; i < count; ++i) {
          const std::size_t at = first + i;
          const std::uint64_t now = word(record + at * kWord);
          const std::uint64_t expected =
              word(earlier + at * kWord) + (at == kSequenceWord ? back : 0);
          std::memcpy(to, &now, sizeof now);  // Kept only when it differs.
          const bool differs = now != expected;
          to += differs ? kWord : 0;
          changed |= static_cast<unsigned>(differs) << i;
        }
        *map++ = static_cast<std::byte>(changed);
      }
    }
    newest_.add(entry);
    record += entry.bytes;
  }
  return static_cast<std::size_t>(to - out);
}

std::size_t DeltaDecoder::decode(ByteView delta, MutableBytes out) noexcept {
  const std::byte* from = delta.data();
  const std::byte* end = from + delta.size();
  std::byte* to = out.data();
  const auto left = [&] { return static_cast<std::size_t>(end - from); };
  const auto room = [&] { return static_cast<std::size_t>(out.data() + out.size() - to); };
  while (from < end) {
    const std::size_t back = std::to_integer<std::size_t>(*from++);
    NewestRecords::Entry entry{to, 0, 0};
    if (back == 0) {
      if (left() < sizeof(RecordHeader)) return 0;
      std::memcpy(&entry.bytes, from, sizeof entry.bytes);
      if (entry.bytes < sizeof(RecordHeader) || entry.bytes > std::min(left(), room())) return 0;
      std::memcpy(to, from, entry.bytes);
      from += entry.bytes;
    } else {
      const NewestRecords::Entry* earlier = newest_.back(back);
      if (earlier == nullptr || earlier->bytes > room()) return 0;
      entry.bytes = earlier->bytes;
      const std::size_t map = map_bytes(entry.bytes);
      if (left() < map) return 0;
      const std::byte* changes = from;
      from += map;
      std::memcpy(to, earlier->start, entry.bytes);
      const std::uint64_t sequence = word(to + kSequenceWord * kWord) + back;
      std::memcpy(to + kSequenceWord * kWord, &sequence, sizeof sequence);
      for (std::size_t group = 0; group < map; ++group) {
        for (unsigned changed = std::to_integer<unsigned>(changes[group]); changed != 0;
             changed &= changed - 1) {
          const std::size_t at = 8 * group + static_cast<std::size_t>(std::countr_zero(changed));
          if (left() < kWord || at >= entry.bytes / kWord) return 0;
          std::memcpy(to + at * kWord, from, kWord);
          from += kWord;
        }
      }
    }
    newest_.add(entry);
    to += entry.bytes;
  }
  return static_cast<std::size_t>(to - out.data());
}

}  // namespace gpurun::bench
