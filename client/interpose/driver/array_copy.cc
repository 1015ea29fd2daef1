// Copies to, from and between CUDA arrays. The worker copies boxes (protocol::kFlagBox), so that a
// box is one record if the program's memory has no gaps in it; else what can be read or written at
// once is put together here, and what must wait for its turn goes line by line.
#include <algorithm>

#include "client/graph_host.h"
#include "client/interpose/arrays.h"
#include "client/interpose/custom.h"
#include "client/interpose/driver/copy.h"
#include "client/interpose/memory_ranges.h"
#include "client/interpose/stream.h"

namespace gpurun::client::interpose {
namespace {

using protocol::BoxCopyPayload;
using protocol::BoxSide;

// What is put together for one record, at least a line.
constexpr std::uint64_t kGatheredBytesMax = std::uint64_t{8} << 20;

// Whole lines of one slice, or whole slices.
struct Part {
  std::uint64_t slice = 0, line = 0;
  std::uint64_t slices = 1, lines = 1;
};

class ArrayRun {
 public:
  ArrayRun(const Here& here, std::uint16_t code, Handle stream, const Copy& copy, Waiting waiting)
      : here_(here), copy_(copy), waiting_(waiting), site_(here.stream_site(stream)) {
    site_.opcode = code;
  }

  int run() {
    if (!copy_.source.on_device()) return in();
    return copy_.destination.on_device() ? within() : out();
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
      // Of a single slice its distance to the next means nothing.
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
    if (copy_.source.on_device()) box.source = side(copy_.source, part, &box.copy.source);
    if (copy_.destination.on_device()) {
      box.destination = side(copy_.destination, part, &box.copy.destination);
    }
    return box;
  }

  // The program's memory.
  GraphHost::Box host_box(const CopySide& of) const {
    return {of.address, of.line_pitch, of.slice_pitch, copy_.width, copy_.lines, copy_.slices};
  }
  bool is_dense(const CopySide& of) const {
    return (copy_.lines == 1 || of.line_pitch == copy_.width) &&
           (copy_.slices == 1 || of.slice_pitch == copy_.width * copy_.lines);
  }
  std::uint64_t offset_of(const Part& part) const {
    return (part.slice * copy_.lines + part.line) * copy_.width;
  }

  // 0 as long as `visit` returns it, for parts of so many lines at most.
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
    if (bytes_of_part(whole()) <= kGatheredBytesMax) return visit(whole());
    return for_each_part(kGatheredBytesMax / copy_.width, visit);
  }
  bool is_last(const Part& part) const {
    return part.slice + part.slices == copy_.slices && part.line + part.lines == copy_.lines;
  }

  bool knows(const CopySide& of) const {
    if (of.place != Place::kArray) return find_range(of.address).has_value();
    const ArrayBox box = {of.x, of.y, of.z, copy_.width, copy_.lines, copy_.slices};
    return check_array_box(here_, of.array, box) == Sound::kRight;
  }

  int within() {
    CallSite site = site_;
    site.form = protocol::Form::kCopyDevice;
    site.flags |= protocol::kFlagBox;
    const BoxCopyPayload payload = box(whole());
    const bool sure =
        knows(copy_.source) && knows(copy_.destination) &&
        (copy_.source.place != copy_.destination.place ||
         check_array_pair(here_, copy_.source.array, copy_.destination.array) == Sound::kRight);
    if (sure) return here_.session().post(*here_.lane, site, bytes_of(payload));
    Reply reply;
    return here_.session().call(*here_.lane, site, bytes_of(payload), &reply);
  }

  int in() {
    const CopySide& from = copy_.source;
    const bool sure = knows(copy_.destination);
    const bool early =
        waiting_ == Waiting::kSynchronous && sure && here_.session().may_answer_early();
    const std::uint64_t reach = extent(from, copy_).value_or(0);
    const bool stays = waiting_ != Waiting::kSynchronous && from.place == Place::kPinned &&
                       place_of(from.address, reach) == Place::kPinned;
    const ByteView source = byte_view(reinterpret_cast<const void*>(from.address), reach);
    Session::Reading reading = Session::Reading::kNow;
    int result = choose_reading(here_, site_, waiting_, stays, source, &reading);
    if (result != 0) return result;
    const auto send = [&](const Part& part, ByteView bytes, Session::Reading when) {
      CallSite site = site_;
      if (early && is_last(part)) site.flags |= protocol::kFlagBarrier;
      return here_.session().copy_in(*here_.lane, site, box(part), bytes, when);
    };
    if (is_dense(from)) {
      result = send(whole(), source, reading);
    } else if (reading == Session::Reading::kInTurn) {
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
        return send(part, gathered, Session::Reading::kNow);
      });
    }
    if (result != 0 || (sure && (waiting_ != Waiting::kSynchronous || early))) return result;
    // Whether the box is inside an array that we do not know, the worker's driver must say.
    return synchronize_stream(here_, site_.stream);
  }

  int out() {
    const CopySide& to = copy_.destination;
    const bool wait = waiting_ == Waiting::kSynchronous || to.place == Place::kPageable;
    const auto bytes_at = [](std::uint64_t address, std::uint64_t count) {
      return mutable_bytes(reinterpret_cast<void*>(address), count);
    };
    Session& session = here_.session();
    if (is_dense(to)) {
      return session.copy_out(*here_.lane, site_, bytes_at(to.address, bytes_of_part(whole())),
                              box(whole()), wait);
    }
    if (!wait) {
      return for_each_part(1, [&](const Part& part) {
        std::uint64_t address = 0;
        (void)side(to, part, &address);
        return session.copy_out(*here_.lane, site_, bytes_at(address, copy_.width), box(part),
                                false);
      });
    }
    Bytes gathered;
    return for_each_gathered([&](const Part& part) {
      gathered.resize(bytes_of_part(part));
      const int result = session.copy_out(*here_.lane, site_, gathered, box(part), true);
      if (result == 0) write_box(host_box(to), offset_of(part), gathered);
      return result;
    });
  }

  const Here& here_;
  const Copy& copy_;
  const Waiting waiting_;
  CallSite site_;
};

CopySide device(CUdeviceptr address) { return {Place::kDevice, address, 0, 0}; }

CopySide host(const void* memory, std::size_t bytes) {
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  return {place_of(address, bytes), address, 0, 0};
}

// One dimension. `make_sides` fills both.
template <typename MakeSides>
CUresult copy_line(std::uint16_t code, std::size_t bytes, CUstream given, Waiting waiting,
                   MakeSides make_sides) {
  Here here;
  if (const int result = here.enter_context(); result != 0) return cuda(result);
  Handle stream = 0;
  if (const int result = here.stream(given, &stream); result != 0) return cuda(result);
  Copy copy;
  copy.width = bytes;
  if (const int result = make_sides(here, &copy); result != 0) return cuda(result);
  for (CopySide* side : {&copy.source, &copy.destination}) {
    if (side->place == Place::kArray) continue;
    if (bytes != 0 && side->address == 0) return CUDA_ERROR_INVALID_VALUE;
    side->line_pitch = side->slice_pitch = bytes;
  }
  return cuda(run_copy(here, code, stream, copy, waiting));
}

CUresult from_host(std::uint16_t code, CUarray to, std::size_t offset, const void* from,
                   std::size_t bytes, CUstream stream, Waiting waiting) {
  return copy_line(code, bytes, stream, waiting, [&](const Here& here, Copy* copy) {
    copy->source = host(from, bytes);
    return side_in_array(here, to, offset, &copy->destination);
  });
}

CUresult to_host(std::uint16_t code, void* to, CUarray from, std::size_t offset, std::size_t bytes,
                 CUstream stream, Waiting waiting) {
  return copy_line(code, bytes, stream, waiting, [&](const Here& here, Copy* copy) {
    copy->destination = host(to, bytes);
    return side_in_array(here, from, offset, &copy->source);
  });
}

}  // namespace

int side_in_array(const Here& here, CUarray array, std::uint64_t offset, CopySide* side) {
  side->place = Place::kArray;
  side->array = handle_of(array);
  side->x = offset;
  return here.check(side->array, HandleKind::kArray);
}

int run_array_copy(const Here& here, std::uint16_t code, Handle stream, const Copy& copy,
                   Waiting waiting) {
  return ArrayRun(here, code, stream, copy, waiting).run();
}

}  // namespace gpurun::client::interpose

namespace gpurun::client::interpose::custom {

CUresult cuMemcpyHtoA_v2(CUarray to, size_t offset, const void* from, size_t bytes) {
  return from_host(opcode::cuMemcpyHtoA_v2, to, offset, from, bytes, nullptr,
                   Waiting::kSynchronous);
}

CUresult cuMemcpyHtoAAsync_v2(CUarray to, size_t offset, const void* from, size_t bytes,
                              CUstream stream) {
  return from_host(opcode::cuMemcpyHtoAAsync_v2, to, offset, from, bytes, stream,
                   Waiting::kAsynchronous);
}

CUresult cuMemcpyAtoH_v2(void* to, CUarray from, size_t offset, size_t bytes) {
  return to_host(opcode::cuMemcpyAtoH_v2, to, from, offset, bytes, nullptr, Waiting::kSynchronous);
}

CUresult cuMemcpyAtoHAsync_v2(void* to, CUarray from, size_t offset, size_t bytes,
                              CUstream stream) {
  return to_host(opcode::cuMemcpyAtoHAsync_v2, to, from, offset, bytes, stream,
                 Waiting::kAsynchronous);
}

// Within the device nothing is waited for (manual, "API synchronization behavior").
CUresult cuMemcpyDtoA_v2(CUarray to, size_t offset, CUdeviceptr from, size_t bytes) {
  return copy_line(opcode::cuMemcpyDtoA_v2, bytes, nullptr, Waiting::kAsynchronous,
                   [&](const Here& here, Copy* copy) {
                     copy->source = device(from);
                     return side_in_array(here, to, offset, &copy->destination);
                   });
}

CUresult cuMemcpyAtoD_v2(CUdeviceptr to, CUarray from, size_t offset, size_t bytes) {
  return copy_line(opcode::cuMemcpyAtoD_v2, bytes, nullptr, Waiting::kAsynchronous,
                   [&](const Here& here, Copy* copy) {
                     copy->destination = device(to);
                     return side_in_array(here, from, offset, &copy->source);
                   });
}

CUresult cuMemcpyAtoA_v2(CUarray to, size_t to_offset, CUarray from, size_t from_offset,
                         size_t bytes) {
  return copy_line(opcode::cuMemcpyAtoA_v2, bytes, nullptr, Waiting::kAsynchronous,
                   [&](const Here& here, Copy* copy) {
                     const int result = side_in_array(here, to, to_offset, &copy->destination);
                     return result != 0 ? result
                                        : side_in_array(here, from, from_offset, &copy->source);
                   });
}

}  // namespace gpurun::client::interpose::custom
