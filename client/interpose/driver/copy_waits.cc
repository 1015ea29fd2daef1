// Copy waits: for earlier sources, and for earlier writes to the source.
#include "client/interpose/driver/copy_waits.h"

#include "client/interpose/call/stream.h"
#include "client/interpose/memory/memory_ranges.h"

namespace gpurun::client::interpose {

bool may_return_early(const EntryContext& here, const CallSite& site, const CopySide& destination,
                      Waiting waiting) {
  if (waiting != Waiting::kSynchronous) return false;
  const MemoryEnd end = destination.place == Place::kArray
                            ? MemoryEnd::kBehindWork
                            : end_of_memory(destination.address, site.context);
  return may_copy_early(here.session().may_answer_early(), end) &&
         here.session().sources_read_within(kSourcesReadWithin);
}

int prepare_reading(const EntryContext& here, const CallSite& site, Waiting waiting, bool stays,
                    ByteView source, CopyReading* reading) {
  const SourceReading chosen =
      choose_reading(waiting, {source.size(), stays, here.session().may_still_write(source)});
  *reading = chosen.when;
  return chosen.wait_first ? synchronize_stream(here, site.stream) : 0;
}

CopyReading pulled_reading(const EntryContext& here, CopyReading reading, bool stays,
                           ByteView source) {
  if (!stays || source.size() < limits::kPulledBytesMin || reading == CopyReading::kNow) {
    return reading;
  }
  const auto range = find_range(reinterpret_cast<std::uintptr_t>(source.data()));
  if (!range.has_value() || !range->on_host()) return reading;
  const ByteView all = byte_view(reinterpret_cast<const void*>(range->base), range->bytes);
  if (!here.session().may_pull(all, source)) return reading;
  return reading == CopyReading::kInTurn ? CopyReading::kPulledInTurn : CopyReading::kPulledSoon;
}

}  // namespace gpurun::client::interpose
