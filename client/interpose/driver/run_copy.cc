// Run copy: the choice between a box record and records of lines.
#include "client/interpose/driver/run_copy.h"

#include <utility>

#include "client/interpose/capture/capture.h"
#include "client/interpose/driver/box_record.h"
#include "client/interpose/driver/copy_memory.h"
#include "client/interpose/driver/graph_work.h"
#include "client/interpose/driver/line_records.h"
#include "client/interpose/memory/kept_frees.h"
#include "client/interpose/memory/memory_ranges.h"

namespace gpurun::client::interpose {
namespace {

// Above this size, a line's own record and transfer cost little compared with gathering lines.
constexpr std::uint64_t kLineAloneBytes = std::uint64_t{64} << 10;

// CU_DEVICE_ATTRIBUTE_MAX_PITCH of all GPUs so far. The pitch of merged slices may be larger.
constexpr std::uint64_t kPitchMax = (std::uint64_t{1} << 31) - 1;

bool goes_as_box(const Copy& copy) {
  if (copy.has_array()) return true;
  if (copy.single_line()) return false;
  for (const CopySide* side : {&copy.source, &copy.destination}) {
    if (side->by_device() && side->line_pitch > kPitchMax) return false;
  }
  if (copy.source.by_device() && copy.destination.by_device()) {
    // Between two devices a driver may copy lines by their addresses but refuse a box.
    if (copy.in_arena()) return true;
    const auto from = find_range(copy.source.address), to = find_range(copy.destination.address);
    return from.has_value() && to.has_value() && from->ordinal == to->ordinal;
  }
  if (copy.source.by_device()) return true;
  if (!copy.destination.by_device()) return false;
  return copy.width < kLineAloneBytes || copy.is_dense(copy.source);
}

// This process moves the bytes of a copy that the device cannot move by itself, and of a source
// that it must read now.
void settle_arena(Waiting waiting, Copy* copy) {
  if (!copy->in_arena()) return;
  const bool alone = copy->source.by_device() && copy->destination.by_device();
  if (alone && waiting != Waiting::kReadNow) return;
  leave_arena(copy);
}

// Posts the kept frees that the copy could show.
void post_frees_before(const EntryContext& here, const Copy& copy, Waiting waiting) {
  if (!kept_frees_exist()) return;
  // The driver judges an address that the client does not know. It may be freed memory.
  for (const CopySide* side : {&copy.source, &copy.destination}) {
    if (side->by_device() && side->place != Place::kArray) settle_unknown(here, side->address);
  }
  if (copy.source.by_device() && copy.destination.by_device() && !copy.in_arena()) return;
  // A copy to the host that the call waits for brings a report of its stream. A synchronous copy to
  // the device may return without one. The bytes of other copies to the host may be seen before.
  const bool to_host = copy.destination.place != Place::kDevice &&
                       copy.destination.place != Place::kArray && !copy.in_arena();
  const bool synchronous = waiting == Waiting::kSynchronous;
  const bool waits = synchronous || copy.destination.place == Place::kPageable;
  const bool reports = to_host && waits && copy.source.by_device();
  const bool shows_nothing = !to_host && !copy.in_arena() && !synchronous;
  if (!reports && !shows_nothing) post_kept_frees(here);
}

}  // namespace

int run_copy(const EntryContext& here, std::uint16_t code, Handle stream, const Copy& wanted,
             Waiting asked) {
  if (wanted.width == 0 || wanted.lines == 0 || wanted.slices == 0) {
    return here.session().health(here.context->handle);
  }
  if (!stays_inside(here, wanted)) return CUDA_ERROR_INVALID_VALUE;
  Copy copy = wanted;
  enter_views(&copy);
  settle_arena(asked, &copy);
  copy.merge();
  post_frees_before(here, copy, asked);
  const bool by_device = copy.source.by_device() && copy.destination.by_device();
  // A copy within device memory waits for nothing (manual, "API synchronization behavior").
  const Waiting waiting = by_device && !copy.in_arena() ? Waiting::kAsynchronous : asked;
  if (!by_device && waiting == Waiting::kAsynchronous && is_captured(here, stream)) {
    GraphWork work;
    const int result = work_of(here, copy, &work);
    return result != 0 ? result : capture_work(here, stream, std::move(work));
  }
  if (goes_as_box(copy)) return run_box_copy(here, code, stream, copy, waiting);
  return run_line_copy(here, code, stream, copy, waiting);
}

}  // namespace gpurun::client::interpose
