// Box record: the parts of a box that each record carries.
#include "client/interpose/driver/box_record.h"

#include <algorithm>

#include "client/bulk/host_box.h"
#include "client/interpose/call/stream.h"
#include "client/interpose/driver/arrays.h"
#include "client/interpose/driver/copy_memory.h"
#include "client/interpose/memory/memory_ranges.h"
#include "client/stats/stats.h"

namespace gpurun::client::interpose {
namespace {

using protocol::BoxCopyPayload;
using protocol::BoxSide;

// The bytes that are gathered for one record, at least a line.
constexpr std::uint64_t kGatheredBytesMax = std::uint64_t{8} << 20;

// Whole slices, or whole lines of one slice.
struct Part {
  std::uint64_t slice = 0, line = 0;
  std::uint64_t slices = 1, lines = 1;
};

class BoxRun {
 public:
  BoxRun(const EntryContext& here, std::uint16_t code, Handle stream, const Copy& copy,
         Waiting waiting)
      : here_(here), copy_(copy), waiting_(waiting), site_(here.stream_site(stream)) {
    site_.opcode = code;
  }

  int run() {
    if (!copy_.source.by_device()) return in();
    return copy_.destination.by_device() ? within() : out();
  }

 private:
  Part whole() const { return {0, 0, copy_.slices, copy_.lines}; }

  std::uint64_t bytes_of_part(const Part& part) const {
    return copy_.width * part.lines * part.slices;
  }

  BoxSide side(const CopySide& of, const Part& part, std::uint64_t* address) const {
    BoxSide side;
    if (of.place == Place::kArray) {
      side.array = of.array;
      side.x = of.x;
      side.y = of.y + part.line;
      side.z = of.z + part.slice;
    } else {
      *address = of.address + part.slice * of.slice_pitch + part.line * of.line_pitch;
      side.line_pitch = of.line_pitch;
      // The distance to the next slice means nothing for a single slice.
      side.slice_lines = copy_.slices == 1 ? copy_.lines : of.slice_pitch / of.line_pitch;
    }
    return side;
  }

  BoxCopyPayload box(const Part& part) const {
    BoxCopyPayload box;
    box.copy.bytes = bytes_of_part(part);
    box.width = copy_.width;
    box.lines = part.lines;
    box.slices = part.slices;
    if (copy_.source.by_device()) box.source = side(copy_.source, part, &box.copy.source);
    if (copy_.destination.by_device()) {
      box.destination = side(copy_.destination, part, &box.copy.destination);
    }
    return box;
  }

  // The box in the program's memory.
  HostBox host_box(const CopySide& of) const {
    return {of.address, of.line_pitch, of.slice_pitch, copy_.width, copy_.lines, copy_.slices};
  }
  std::uint64_t offset_of(const Part& part) const {
    return (part.slice * copy_.lines + part.line) * copy_.width;
  }

  // Visits parts of at most `lines_max` lines until `visit` returns other than 0.
  template <typename Visit>
  int for_each_part(std::uint64_t lines_max, Visit visit) const {
    int result = 0;
    const std::uint64_t step = std::min(copy_.lines, std::max<std::uint64_t>(lines_max, 1));
    for (std::uint64_t slice = 0; slice < copy_.slices && result == 0; ++slice) {
      for (std::uint64_t line = 0; line < copy_.lines && result == 0; line += step) {
        result = visit(Part{slice, line, 1, std::min(step, copy_.lines - line)});
      }
    }
    return result;
  }
  template <typename Visit>
  int for_each_gathered(Visit visit) const {
    const std::uint64_t slice_bytes = copy_.width * copy_.lines;
    if (slice_bytes > kGatheredBytesMax) {
      return for_each_part(kGatheredBytesMax / copy_.width, visit);
    }
    int result = 0;
    const std::uint64_t step = kGatheredBytesMax / slice_bytes;
    for (std::uint64_t slice = 0; slice < copy_.slices && result == 0; slice += step) {
      result = visit(Part{slice, 0, std::min(step, copy_.slices - slice), copy_.lines});
    }
    return result;
  }
  bool is_last(const Part& part) const {
    return part.slice + part.slices == copy_.slices && part.line + part.lines == copy_.lines;
  }

  int within() {
    CallSite site = site_;
    site.form = protocol::Form::kCopyDevice;
    site.flags |= protocol::kFlagBox;
    if (copy_.in_arena()) {
      here_.session().stats().count_reached(site.opcode, bytes_of_part(whole()));
    }
    const BoxCopyPayload payload = box(whole());
    const bool sure =
        is_known(here_, copy_.source, copy_) && is_known(here_, copy_.destination, copy_) &&
        (copy_.source.place != copy_.destination.place ||
         check_array_pair(here_, copy_.source.array, copy_.destination.array) == Sound::kRight);
    Reply reply;
    const int result = sure ? here_.session().post(*here_.lane, site, bytes_of(payload))
                            : here_.session().call(*here_.lane, site, bytes_of(payload), &reply);
    if (result != 0 || waiting_ != Waiting::kSynchronous) return result;
    return synchronize_stream(here_, site_.stream);
  }

  int in() {
    const CopySide& from = copy_.source;
    const bool sure = is_found(here_, copy_.destination, copy_);
    const std::uint64_t reach = extent(from, copy_).value_or(0);
    const bool pinned =
        from.place == Place::kPinned && place_of(from.address, reach) == Place::kPinned;
    const bool stays = pinned && waiting_ != Waiting::kSynchronous;
    const ByteView source = byte_view(reinterpret_cast<const void*>(from.address), reach);
    CopyReading reading = CopyReading::kNow;
    // A synchronous copy that the worker reads waits for its stream.
    const bool awaits_read = waiting_ == Waiting::kSynchronous && copy_.is_dense(from) &&
                             is_pulled(pulled_reading(here_, waiting_, reading, pinned, source));
    const bool early =
        sure && !awaits_read && may_return_early(here_, site_, copy_.destination, waiting_);
    int result = prepare_reading(here_, site_, waiting_, stays, source, &reading);
    if (result != 0) return result;
    const auto send = [&](const Part& part, ByteView bytes, CopyReading when) {
      CallSite site = site_;
      if (early && is_last(part)) site.flags |= protocol::kFlagBarrier;
      return here_.session().copy_in(*here_.lane, site, box(part), bytes, when);
    };
    if (copy_.is_dense(from)) {
      if (stays || awaits_read) {
        reading = pulled_reading(here_, waiting_, reading, pinned, source);
      }
      result = send(whole(), source, reading);
    } else if (reading == CopyReading::kInTurn) {
      result = for_each_part(1, [&](const Part& part) {
        std::uint64_t address = 0;
        (void)side(from, part, &address);
        return send(part, byte_view(reinterpret_cast<const void*>(address), copy_.width), reading);
      });
    } else {
      Bytes gathered;
      result = for_each_gathered([&](const Part& part) {
        gathered.resize(bytes_of_part(part));
        read_box(host_box(from), offset_of(part), gathered);
        return send(part, gathered, CopyReading::kNow);
      });
    }
    if (result != 0 || (sure && (waiting_ != Waiting::kSynchronous || early))) return result;
    // Only the worker's driver can decide whether the box is inside an array that we do not know.
    result = synchronize_stream(here_, site_.stream);
    // After a failure the worker's device may still read.
    if (awaits_read) here_.session().await_read(source);
    return result;
  }

  int out() {
    const bool wait =
        waiting_ == Waiting::kSynchronous || copy_.destination.place == Place::kPageable;
    const CopySide& to = copy_.destination;
    const std::uint64_t reach = extent(to, copy_).value_or(0);
    const bool pinned = copy_.is_dense(to) && to.place == Place::kPinned &&
                        place_of(to.address, reach) == Place::kPinned;
    const CopyArrival arrival =
        written_arrival(here_, pinned, byte_view(reinterpret_cast<const void*>(to.address), reach));
    return here_.session().copy_out(*here_.lane, site_, host_box(to), box(whole()), wait, arrival);
  }

  const EntryContext& here_;
  const Copy& copy_;
  const Waiting waiting_;
  CallSite site_;
};

}  // namespace

int run_box_copy(const EntryContext& here, std::uint16_t code, Handle stream, const Copy& copy,
                 Waiting waiting) {
  return BoxRun(here, code, stream, copy, waiting).run();
}

}  // namespace gpurun::client::interpose
