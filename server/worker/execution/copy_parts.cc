// CopyParts: cuts a range of a box's bytes into boxes.
#include "server/worker/execution/copy_parts.h"

#include <algorithm>
#include <cstring>

#include "driver_abi/cuda_abi.h"
#include "server/worker/execution/host_memory.h"

namespace gpurun::server {

using protocol::BoxSide;

// A box in the box: its origin and its size.
struct CopyParts::Piece {
  std::uint64_t x, y, z;
  std::uint64_t width, lines, slices;
  std::uint64_t bytes() const { return width * lines * slices; }
};

namespace {

int find_array(Call& call, const BoxSide& side, DriverValue* array) {
  if (side.array == 0) return 0;
  const HandleTable::Found found = call.handles().find(side.array, HandleKind::kArray);
  *array = found.value;
  return found.result;
}

CUarray as_array(DriverValue value) {
  return reinterpret_cast<CUarray>(static_cast<std::uintptr_t>(value));
}

CUmemorytype type_of(DriverValue array, bool host) {
  if (array != 0) return CU_MEMORYTYPE_ARRAY;
  return host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
}

}  // namespace

CopyParts::CopyParts(Call& call)
    : driver_(call.driver()),
      host_memory_(call.host_memory()),
      stream_(call.driver_stream()),
      is_box_((call.header().flags & protocol::kFlagBox) != 0) {
  std::memcpy(&box_, call.payload().data(), protocol::copy_payload_bytes(call.header()));
  if (!is_box_) return;
  result_ = find_array(call, box_.source, &source_array_);
  if (result_ == 0) result_ = find_array(call, box_.destination, &destination_array_);
}

// The largest box that begins at `offset` and has at most `bytes`: the rest of a line, lines, or
// slices.
CopyParts::Piece CopyParts::piece_at(std::uint64_t offset, std::uint64_t bytes) const {
  const std::uint64_t slice_bytes = box_.width * box_.lines;
  const std::uint64_t x = offset % box_.width;
  const std::uint64_t y = offset / box_.width % box_.lines;
  const std::uint64_t z = offset / slice_bytes;
  if (x != 0 || bytes < box_.width) {
    return {x, y, z, std::min(bytes, box_.width - x), 1, 1};
  }
  if (y != 0 || bytes < slice_bytes) {
    return {0, y, z, box_.width, std::min(bytes / box_.width, box_.lines - y), 1};
  }
  return {0, 0, z, box_.width, box_.lines, bytes / slice_bytes};
}

int CopyParts::issue(const Piece& piece, Host which, std::byte* host) const {
  if (driver_.cuMemcpy3DAsync == nullptr) return kErrorNotSupported;
  CUDA_MEMCPY3D copy{};
  if (which == Host::kSource) {
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = host;
    copy.srcPitch = piece.width;
    copy.srcHeight = piece.lines;
  } else {
    copy.srcMemoryType = type_of(source_array_, is_host(box_.copy.source, box_.source));
    copy.srcArray = as_array(source_array_);
    copy.srcDevice = box_.copy.source;
    if (copy.srcMemoryType == CU_MEMORYTYPE_HOST) {
      copy.srcHost = reinterpret_cast<const void*>(box_.copy.source);
    }
    copy.srcXInBytes = box_.source.x + piece.x;
    copy.srcY = box_.source.y + piece.y;
    copy.srcZ = box_.source.z + piece.z;
    copy.srcPitch = box_.source.line_pitch;
    copy.srcHeight = box_.source.slice_lines;
  }
  if (which == Host::kDestination) {
    copy.dstMemoryType = CU_MEMORYTYPE_HOST;
    copy.dstHost = host;
    copy.dstPitch = piece.width;
    copy.dstHeight = piece.lines;
  } else {
    copy.dstMemoryType =
        type_of(destination_array_, is_host(box_.copy.destination, box_.destination));
    copy.dstArray = as_array(destination_array_);
    copy.dstDevice = box_.copy.destination;
    if (copy.dstMemoryType == CU_MEMORYTYPE_HOST) {
      copy.dstHost = reinterpret_cast<void*>(box_.copy.destination);
    }
    copy.dstXInBytes = box_.destination.x + piece.x;
    copy.dstY = box_.destination.y + piece.y;
    copy.dstZ = box_.destination.z + piece.z;
    copy.dstPitch = box_.destination.line_pitch;
    copy.dstHeight = box_.destination.slice_lines;
  }
  copy.WidthInBytes = piece.width;
  copy.Height = piece.lines;
  copy.Depth = piece.slices;
  return driver_.cuMemcpy3DAsync(&copy, stream_);
}

int CopyParts::issue_all(Host which, std::byte* host, std::uint64_t offset,
                         std::size_t bytes) const {
  int result = 0;
  while (bytes != 0 && result == 0) {
    const Piece piece = piece_at(offset, bytes);
    result = issue(piece, which, host);
    host += piece.bytes();
    offset += piece.bytes();
    bytes -= static_cast<std::size_t>(piece.bytes());
  }
  return result;
}

int CopyParts::in(const std::byte* host, std::uint64_t offset, std::size_t bytes) const {
  if (!is_box_) {
    return driver_.cuMemcpyHtoDAsync(box_.copy.destination + offset, host, bytes, stream_);
  }
  return issue_all(Host::kSource, const_cast<std::byte*>(host), offset, bytes);
}

int CopyParts::out(std::byte* host, std::uint64_t offset, std::size_t bytes) const {
  if (!is_box_) {
    return driver_.cuMemcpyDtoHAsync(host, box_.copy.source + offset, bytes, stream_);
  }
  return issue_all(Host::kDestination, host, offset, bytes);
}

// Whether the client's host memory holds all of the side. Else the driver takes the address for one
// of the device, and refuses it if it is not.
bool CopyParts::is_host(std::uint64_t address, const BoxSide& side) const {
  if (host_memory_ == nullptr || side.array != 0) return false;
  if (!is_box_) return host_memory_->covers(address, box_.copy.bytes);
  // The driver adds a position to the address. Memory has none.
  std::uint64_t slice_pitch = 0;
  return side.x == 0 && side.y == 0 && side.z == 0 &&
         !__builtin_mul_overflow(side.slice_lines, side.line_pitch, &slice_pitch) &&
         host_memory_->covers(
             HostSide{address, box_.width, box_.lines, box_.slices, side.line_pitch, slice_pitch});
}

int CopyParts::by_device() const {
  const protocol::CopyPayload& copy = box_.copy;
  if (is_box_) return issue({0, 0, 0, box_.width, box_.lines, box_.slices}, Host::kNone, nullptr);
  const bool from_host = is_host(copy.source, box_.source);
  const bool to_host = is_host(copy.destination, box_.destination);
  if (from_host && !to_host) {
    return driver_.cuMemcpyHtoDAsync(copy.destination, reinterpret_cast<void*>(copy.source),
                                     copy.bytes, stream_);
  }
  if (to_host && !from_host) {
    return driver_.cuMemcpyDtoHAsync(reinterpret_cast<void*>(copy.destination), copy.source,
                                     copy.bytes, stream_);
  }
  return driver_.cuMemcpyDtoDAsync(copy.destination, copy.source, copy.bytes, stream_);
}

}  // namespace gpurun::server
