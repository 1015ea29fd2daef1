// Box copies: copies of two and three dimensions, reduced to as few lines as their gaps allow.
#include <sys/mman.h>

#include <cstring>

#include "client/interpose/call/stream.h"
#include "client/interpose/capture/capture.h"
#include "client/interpose/driver/arrays.h"
#include "client/interpose/driver/copy.h"
#include "client/interpose/driver/graph_work.h"
#include "client/interpose/memory/memory_ranges.h"

namespace gpurun::client::interpose {
namespace {

// The usual bounds of a program's memory. The first address is Linux' vm.mmap_min_addr. The last is
// that of x86-64 with 4 levels of pages, which the kernel uses unless it is asked for more. Memory
// outside these bounds costs a system call to check.
constexpr std::uint64_t kUsualBegin = 64 << 10;
constexpr std::uint64_t kUsualEnd = std::uint64_t{1} << 47;
constexpr std::uint64_t kPageBytes = 4096;

// The kernel looks only at its list of mappings for this call.
bool is_mapped(std::uint64_t address, std::uint64_t bytes) {
  const std::uint64_t page = address & ~(kPageBytes - 1);
  return msync(reinterpret_cast<void*>(page), address + bytes - page, MS_ASYNC) == 0;
}

// Whether host memory cannot lie there: null with an offset, an overflow, or a range that reaches
// into a window.
bool is_nowhere(std::uint64_t address, std::uint64_t bytes) {
  if (address + bytes < address || reaches_window(address, bytes)) return true;
  if (address >= kUsualBegin && address + bytes <= kUsualEnd) return false;
  return !is_mapped(address, bytes);
}

// Whether a copy leaves known device memory, which must hold all of it.
bool reaches_beyond(const Here& here, const CopySide& side, const Copy& copy) {
  if (side.place == Place::kArray) {
    const ArrayBox box = {side.x, side.y, side.z, copy.width, copy.lines, copy.slices};
    return check_array_box(here, side.array, box) == Sound::kWrong;
  }
  const std::optional<std::uint64_t> bytes = extent(side, copy);
  if (!bytes.has_value()) return true;
  if (side.place != Place::kDevice) return is_nowhere(side.address, *bytes);
  const auto range = find_range(side.address);
  // In a window, only allocated memory is memory.
  if (!range.has_value()) return device_of_window(side.address) >= 0;
  return !range->on_host() && !range->covers(side.address, *bytes);
}

// A larger pinned source is read by our threads at the speed of the wire. The call neither copies
// it nor waits for room.
constexpr std::uint64_t kReadAtOnceBytes = std::uint64_t{32} << 10;
// Larger copies take longer than the time for which a copy may be reported as done early. They are
// not quiet work (Work).
constexpr std::uint64_t kQuietCopyBytesMax = std::uint64_t{8} << 10;
static_assert(kQuietCopyBytesMax <= limits::kInlineBytesMax, "their bytes are in their records");
// How long a synchronous copy to the device waits until earlier sources are read. Compared with
// this time a round trip to the device is cheap.
constexpr std::chrono::milliseconds kSourcesReadWithin{20};
// The driver stages up to this much pageable memory at once. Larger copies wait.
constexpr std::uint64_t kStagedBytes = 64 << 10;

class Run {
 public:
  Run(const Here& here, std::uint16_t code, Handle stream, const Copy& copy, Waiting waiting)
      : here_(here), copy_(copy), waiting_(waiting), site_(here.stream_site(stream)) {
    site_.opcode = code;
  }

  int run() {
    const bool from_device = copy_.source.place == Place::kDevice;
    const bool to_device = copy_.destination.place == Place::kDevice;
    if (!from_device && !to_device) return on_host();
    early_ = !from_device && may_return_early(here_, site_, copy_.destination, waiting_);
    int result = 0;
    for (std::uint64_t slice = 0; slice < copy_.slices && result == 0; ++slice) {
      for (std::uint64_t line = 0; line < copy_.lines && result == 0; ++line) {
        const std::uint64_t from = at(copy_.source, slice, line);
        const std::uint64_t to = at(copy_.destination, slice, line);
        const bool last = slice + 1 == copy_.slices && line + 1 == copy_.lines;
        result = from_device && to_device ? between(to, from)
                 : from_device            ? out(to, from)
                                          : in(to, from, last);
      }
    }
    return result == 0 ? finish() : result;
  }

 private:
  static std::uint64_t at(const CopySide& side, std::uint64_t slice, std::uint64_t line) {
    return side.address + slice * side.slice_pitch + line * side.line_pitch;
  }

  static bool known(std::uint64_t address) { return find_range(address).has_value(); }

  // Whether the destination must be written on return.
  bool must_wait_out() const {
    return waiting_ == Waiting::kSynchronous || copy_.destination.place == Place::kPageable;
  }

  int on_host() {
    // After the stream's earlier writes there, as CUDA does it.
    const int result = synchronize_stream(here_, site_.stream);
    for (std::uint64_t slice = 0; slice < copy_.slices; ++slice) {
      for (std::uint64_t line = 0; line < copy_.lines; ++line) {
        std::memmove(reinterpret_cast<void*>(at(copy_.destination, slice, line)),
                     reinterpret_cast<const void*>(at(copy_.source, slice, line)), copy_.width);
      }
    }
    return result;
  }

  int between(std::uint64_t to, std::uint64_t from) {
    protocol::CopyPayload payload;
    payload.destination = to;
    payload.source = from;
    payload.bytes = copy_.width;
    CallSite site = site_;
    site.form = protocol::Form::kCopyDevice;
    // Only the worker's driver can decide whether addresses that we do not know are valid.
    if (known(from) && known(to)) return here_.session().post(*here_.lane, site, bytes_of(payload));
    Reply reply;
    return here_.session().call(*here_.lane, site, bytes_of(payload), &reply);
  }

  int in(std::uint64_t to, std::uint64_t from, bool last) {
    const ByteView source = byte_view(reinterpret_cast<const void*>(from), copy_.width);
    CallSite site = site_;
    Session::Reading reading = Session::Reading::kNow;
    const int result =
        choose_reading(here_, site, waiting_, stays_on_return(from), source, &reading);
    if (result != 0) return result;
    // Only a copy that was answered early is a barrier. A copy that its thread waits for must not
    // hold up calls of other threads, because earlier work may wait for those calls.
    if (early_ && last) site.flags = protocol::kFlagBarrier;
    if (reading != Session::Reading::kInTurn) site.work = work_of(to);
    return here_.session().copy_in(*here_.lane, site, to, source, reading);
  }

  Work work_of(std::uint64_t to) const {
    if (!copy_.single_line() || copy_.width > kQuietCopyBytesMax ||
        waiting_ == Waiting::kSynchronous) {
      return Work::kAny;
    }
    const auto range = find_range(to);
    return range.has_value() && range->ends_behind(site_.context) ? Work::kQuiet : Work::kAny;
  }

  // Whether the source stays unchanged until the copy is complete, except by work that is ordered
  // before the copy.
  bool stays_on_return(std::uint64_t from) const {
    if (waiting_ == Waiting::kSynchronous || copy_.source.place != Place::kPinned) return false;
    // Only the first line of a box was checked.
    return copy_.single_line() || place_of(from, copy_.width) == Place::kPinned;
  }

  int out(std::uint64_t to, std::uint64_t from) {
    return here_.session().copy_out(*here_.lane, site_,
                                    mutable_bytes(reinterpret_cast<void*>(to), copy_.width), from,
                                    copy_.single_line() && must_wait_out());
  }

  int finish() {
    const bool out = copy_.destination.place != Place::kDevice;
    if (out)
      return copy_.single_line() || !must_wait_out() ? 0 : synchronize_stream(here_, site_.stream);
    const bool in = copy_.source.place != Place::kDevice;
    // Only the worker's driver can decide whether an address that we do not know is valid.
    const bool asked = in && !known(copy_.destination.address);
    if (!asked && (!in || waiting_ != Waiting::kSynchronous || early_)) return 0;
    return synchronize_stream(here_, site_.stream);
  }

  const Here& here_;
  const Copy& copy_;
  const Waiting waiting_;
  CallSite site_;
  bool early_ = false;  // A synchronous copy to the device that the call does not wait for.
};

}  // namespace

// A synchronous copy to the device implies that the earlier work of blocking streams is done. The
// program could notice only by three things: bytes that arrive in its memory, its queries, and an
// earlier source that it overwrites. The worker answers queries after the copy. A copy of a
// non-blocking stream may read its source only in a later call. Then this copy waits for the device
// as CUDA does.
bool may_return_early(const Here& here, const CallSite& site, const CopySide& destination,
                      Waiting waiting) {
  if (waiting != Waiting::kSynchronous || !here.session().may_answer_early()) return false;
  if (destination.place != Place::kArray) {
    const auto range = find_range(destination.address);
    // Unloading a module ends its variables, so nothing can use what was copied there.
    if (!range.has_value() ||
        (!range->ends_behind(site.context) && range->kind != MemoryKind::kModule)) {
      return false;
    }
  }
  return here.session().sources_read_within(kSourcesReadWithin);
}

std::optional<std::uint64_t> extent(const CopySide& side, const Copy& copy) {
  std::uint64_t slices = 0, lines = 0, all = 0;
  if (__builtin_mul_overflow(copy.slices - 1, side.slice_pitch, &slices) ||
      __builtin_mul_overflow(copy.lines - 1, side.line_pitch, &lines) ||
      __builtin_add_overflow(slices, lines, &all) ||
      __builtin_add_overflow(all, copy.width, &all)) {
    return std::nullopt;
  }
  return all;
}

// Pinned memory is read when the stream reaches the copy. Reading now differs only if earlier work
// (a copy out, a host function, a graph) may still write there. Otherwise the program must not
// touch the memory meanwhile. The source of a synchronous copy, and pageable memory, belong to the
// program again on return. Such a copy waits for earlier writes of the stream to its source.
// Exception: a small asynchronous copy (manual, "API synchronization behavior": it is staged
// immediately).
int choose_reading(const Here& here, const CallSite& site, Waiting waiting, bool stays,
                   ByteView source, Session::Reading* reading) {
  using Reading = Session::Reading;
  const bool written = here.session().may_still_write(source);
  *reading = Reading::kNow;
  if (waiting == Waiting::kReadNow) return 0;  // The program promises no earlier writes.
  if (stays) {
    *reading = written                            ? Reading::kInTurn
               : source.size() > kReadAtOnceBytes ? Reading::kSoon
                                                  : Reading::kNow;
    return 0;
  }
  const bool staged = waiting != Waiting::kSynchronous && source.size() <= kStagedBytes;
  return written && !staged ? synchronize_stream(here, site.stream) : 0;
}

Place place_of(std::uint64_t address, std::uint64_t bytes) noexcept {
  bool held = false;
  const auto range = find_range(address, &held);
  if (!range.has_value()) {
    return held || device_of_window(address) >= 0 ? Place::kDevice : Place::kPageable;
  }
  if (!range->on_host()) return Place::kDevice;
  return range->covers(address, bytes) ? Place::kPinned : Place::kPageable;
}

bool is_memory(const CopySide& side, std::uint64_t bytes) noexcept {
  return side.place != Place::kPageable || bytes == 0 ||
         (side.address + bytes > side.address && is_mapped(side.address, bytes));
}

void Copy::merge() {
  if (has_array()) return;
  if (lines == 1) {
    lines = slices;
    source.line_pitch = source.slice_pitch;
    destination.line_pitch = destination.slice_pitch;
    slices = 1;
  }
  const auto dense = [](const CopySide& side, std::uint64_t wide) {
    return side.line_pitch == wide;
  };
  if (!dense(source, width) || !dense(destination, width)) return;
  width *= lines;
  lines = slices;
  source.line_pitch = source.slice_pitch;
  destination.line_pitch = destination.slice_pitch;
  slices = 1;
  if (lines > 1 && dense(source, width) && dense(destination, width)) {
    width *= lines;
    lines = 1;
  }
}

bool is_known(const Here& here, const CopySide& side, const Copy& copy) {
  if (side.place != Place::kArray) return find_range(side.address).has_value();
  const ArrayBox box = {side.x, side.y, side.z, copy.width, copy.lines, copy.slices};
  return check_array_box(here, side.array, box) == Sound::kRight;
}

bool stays_inside(const Here& here, const Copy& copy) {
  std::uint64_t bytes = 0;
  if (__builtin_mul_overflow(copy.width, copy.lines, &bytes) ||
      __builtin_mul_overflow(bytes, copy.slices, &bytes) || bytes > limits::kBulkBytesMax) {
    return false;
  }
  const bool arrays = copy.source.place == Place::kArray && copy.destination.place == Place::kArray;
  if (arrays &&
      check_array_pair(here, copy.source.array, copy.destination.array) == Sound::kWrong) {
    return false;
  }
  return !reaches_beyond(here, copy.source, copy) && !reaches_beyond(here, copy.destination, copy);
}

namespace {

// Above this size, a line's own record and transfer cost little compared with gathering lines.
constexpr std::uint64_t kLineAloneBytes = std::uint64_t{64} << 10;

// CU_DEVICE_ATTRIBUTE_MAX_PITCH of all GPUs so far. The pitch of merged slices may be larger.
constexpr std::uint64_t kPitchMax = (std::uint64_t{1} << 31) - 1;

bool goes_as_box(const Copy& copy) {
  if (copy.has_array()) return true;
  if (copy.single_line()) return false;
  for (const CopySide* side : {&copy.source, &copy.destination}) {
    if (side->on_device() && side->line_pitch > kPitchMax) return false;
  }
  if (copy.source.on_device() && copy.destination.on_device()) {
    // Between two devices a driver may copy lines by their addresses but refuse a box.
    const auto from = find_range(copy.source.address), to = find_range(copy.destination.address);
    return from.has_value() && to.has_value() && from->ordinal == to->ordinal;
  }
  if (copy.source.on_device()) return true;
  if (!copy.destination.on_device()) return false;
  return copy.width < kLineAloneBytes || copy.is_dense(copy.source);
}

}  // namespace

int run_copy(const Here& here, std::uint16_t code, Handle stream, const Copy& wanted,
             Waiting waiting) {
  if (wanted.width == 0 || wanted.lines == 0 || wanted.slices == 0) {
    return here.session().health(here.context->handle);
  }
  const bool on_device = wanted.source.on_device() && wanted.destination.on_device();
  if (!stays_inside(here, wanted)) return CUDA_ERROR_INVALID_VALUE;
  Copy copy = wanted;
  copy.merge();
  if (!on_device && waiting == Waiting::kAsynchronous && is_captured(here, stream)) {
    GraphWork work;
    const int result = work_of(here, copy, &work);
    return result != 0 ? result : capture_work(here, stream, std::move(work));
  }
  if (goes_as_box(copy)) return run_box_copy(here, code, stream, copy, waiting);
  return Run(here, code, stream, copy, waiting).run();
}

}  // namespace gpurun::client::interpose
