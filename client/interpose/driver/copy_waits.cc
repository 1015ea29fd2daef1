// Copy waits: for earlier sources, and for earlier writes to the source.
#include "client/interpose/driver/copy_waits.h"

#include "client/interpose/call/stream.h"
#include "client/interpose/memory/memory_ranges.h"

namespace gpurun::client::interpose {
namespace {

ByteView memory_of(const MemoryRange& range) {
  return byte_view(reinterpret_cast<const void*>(range.base), range.bytes);
}

}  // namespace

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

CopyReading pulled_reading(const EntryContext& here, Waiting waiting, CopyReading reading,
                           bool pinned, ByteView source) {
  if (!pinned || source.size() < limits::kPulledBytesMin || waiting == Waiting::kReadNow) {
    return reading;
  }
  const auto range = find_range(reinterpret_cast<std::uintptr_t>(source.data()));
  if (!range.has_value() || !range->on_host()) return reading;
  if (!here.session().may_pull(memory_of(*range), source)) return reading;
  return reading == CopyReading::kInTurn ? CopyReading::kPulledInTurn : CopyReading::kPulledSoon;
}

CopyArrival written_arrival(const EntryContext& here, bool pinned, ByteView destination) {
  if (!pinned || destination.size() < limits::kPulledBytesMin) return CopyArrival::kSent;
  const auto range = find_range(reinterpret_cast<std::uintptr_t>(destination.data()));
  // The kernel notes no writes of a device, and memory with a view has a copy at the worker.
  const bool may = range.has_value() && range->on_host() && range->view == 0 && !range->reached;
  const bool written = may && here.session().may_be_written(memory_of(*range), destination);
  return written ? CopyArrival::kWritten : CopyArrival::kSent;
}

}  // namespace gpurun::client::interpose
