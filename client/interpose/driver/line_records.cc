// Line records: lines to the device, from it, within it, and within host memory.
#include "client/interpose/driver/line_records.h"

#include <cstring>

#include "client/early_answers/quiet_work.h"
#include "client/interpose/call/stream.h"
#include "client/interpose/driver/copy_memory.h"
#include "client/interpose/memory/graph_memory.h"
#include "client/interpose/memory/memory_ranges.h"
#include "client/stats/stats.h"

namespace gpurun::client::interpose {
namespace {

class LineRun {
 public:
  LineRun(const EntryContext& here, std::uint16_t code, Handle stream, const Copy& copy,
          Waiting waiting)
      : here_(here), copy_(copy), waiting_(waiting), site_(here.stream_site(stream)) {
    site_.opcode = code;
  }

  int run() {
    const bool from_device = copy_.source.by_device();
    const bool to_device = copy_.destination.by_device();
    if (!from_device && !to_device) return on_host();
    awaits_read_ = !from_device && pulls_and_waits();
    early_ = !from_device && !awaits_read_ &&
             may_return_early(here_, site_, copy_.destination, waiting_);
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

  bool known(std::uint64_t address) const { return may_be_posted(here_, address); }

  // Whether the destination must be written on return.
  bool must_wait_out() const {
    return waiting_ == Waiting::kSynchronous || copy_.destination.place == Place::kPageable;
  }

  int on_host() {
    // After the stream's earlier writes there, as CUDA does it.
    const int result = synchronize_stream(here_, site_.stream);
    const auto held = here_.session().hold_exchanges();
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
    if (copy_.in_arena()) here_.session().stats().count_reached(site.opcode, copy_.width);
    // Only the worker's driver can decide whether addresses that we do not know are valid.
    if (known(from) && known(to)) return here_.session().post(*here_.lane, site, bytes_of(payload));
    Reply reply;
    return here_.session().call(*here_.lane, site, bytes_of(payload), &reply);
  }

  int in(std::uint64_t to, std::uint64_t from, bool last) {
    const ByteView source = byte_view(reinterpret_cast<const void*>(from), copy_.width);
    CallSite site = site_;
    CopyReading reading = CopyReading::kNow;
    const bool pinned = is_pinned(copy_.source, from);
    const bool stays = pinned && waiting_ != Waiting::kSynchronous;
    const int result = prepare_reading(here_, site, waiting_, stays, source, &reading);
    if (result != 0) return result;
    if (stays || awaits_read_) {
      reading = pulled_reading(here_, waiting_, reading, pinned, source);
    }
    // Only a copy that was answered early is a barrier. A copy that its thread waits for must not
    // hold up calls of other threads, because earlier work may wait for those calls.
    if (early_ && last) site.flags = protocol::kFlagBarrier;
    const bool in_turn = reading == CopyReading::kInTurn || is_pulled(reading);
    if (!in_turn) site.work = work_of(to);
    return here_.session().copy_in(*here_.lane, site, to, source, reading);
  }

  Work work_of(std::uint64_t to) const {
    if (!copy_.single_line() || waiting_ == Waiting::kSynchronous) return Work::kAny;
    return work_of_copy(copy_.width, end_of_memory(to, site_.context));
  }

  // Whether the line at `address` of `side` is in pinned memory. The source of an asynchronous copy
  // then stays unchanged until the copy is complete, except by work that is ordered before the
  // copy.
  bool is_pinned(const CopySide& side, std::uint64_t address) const {
    if (side.place != Place::kPinned) return false;
    // Only the first line of a box was checked.
    return copy_.single_line() || place_of(address, copy_.width) == Place::kPinned;
  }

  // Whether the worker reads the source of a synchronous copy by itself. The call then waits for
  // the copy's stream. It is no barrier, because earlier work may wait for calls of other threads.
  bool pulls_and_waits() const {
    if (waiting_ != Waiting::kSynchronous || !copy_.single_line()) return false;
    return is_pulled(pulled_reading(here_, waiting_, CopyReading::kNow,
                                    is_pinned(copy_.source, copy_.source.address), source()));
  }
  ByteView source() const {
    return byte_view(reinterpret_cast<const void*>(copy_.source.address), copy_.width);
  }

  int out(std::uint64_t to, std::uint64_t from) {
    const MutableBytes destination = mutable_bytes(reinterpret_cast<void*>(to), copy_.width);
    const CopyArrival arrival =
        written_arrival(here_, is_pinned(copy_.destination, to), destination);
    return here_.session().copy_out(*here_.lane, site_, destination, from,
                                    copy_.single_line() && must_wait_out(), arrival);
  }

  int finish() {
    if (copy_.in_arena()) {
      return waiting_ == Waiting::kSynchronous ? synchronize_stream(here_, site_.stream) : 0;
    }
    const bool out = copy_.destination.place != Place::kDevice;
    if (out)
      return copy_.single_line() || !must_wait_out() ? 0 : synchronize_stream(here_, site_.stream);
    const bool in = copy_.source.place != Place::kDevice;
    // Only the worker's driver can decide whether an address that we do not know is valid.
    const bool asked = in && !is_found(here_, copy_.destination, copy_);
    if (!asked && (!in || waiting_ != Waiting::kSynchronous || early_)) return 0;
    const int result = synchronize_stream(here_, site_.stream);
    // After a failure the worker's device may still read.
    if (awaits_read_) here_.session().await_read(source());
    return result;
  }

  const EntryContext& here_;
  const Copy& copy_;
  const Waiting waiting_;
  CallSite site_;
  bool awaits_read_ = false;  // See pulls_and_waits().
  bool early_ = false;        // A synchronous copy to the device that the call does not wait for.
};

}  // namespace

int run_line_copy(const EntryContext& here, std::uint16_t code, Handle stream, const Copy& copy,
                  Waiting waiting) {
  return LineRun(here, code, stream, copy, waiting).run();
}

}  // namespace gpurun::client::interpose
