// CopyParts: the driver calls of a copy record, for all of its bytes or a part of them. The copy is
// linear or of a box, and a side of a box may be a CUDA array (protocol::kFlagBox).
//
// For the executor's thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "protocol/log/record.h"
#include "server/worker/execution/call.h"

namespace gpurun::server {

class HostMemory;

class CopyParts {
 public:
  // Reads the payload and looks up its arrays. parse_record() has checked the sizes in the payload.
  explicit CopyParts(Call& call);

  // 0, or the CUresult for an invalid array.
  int result() const { return result_; }
  const protocol::CopyPayload& copy() const { return box_.copy; }
  // Whether the bytes on the device are one after the other, from an address on.
  bool is_line() const { return !is_box_; }
  // For a copy from the device: the number of connections that may carry its bytes.
  std::uint64_t connections() const { return box_.copy.destination; }

  // Copies the bytes [offset, offset + bytes) from or to `host`, in the stream of the call. Returns
  // the driver's CUresult.
  int in(const std::byte* host, std::uint64_t offset, std::size_t bytes) const;
  int out(std::byte* host, std::uint64_t offset, std::size_t bytes) const;
  // Copies all bytes between addresses that the device reaches. Either may be host memory of the
  // client (HostMemory).
  int by_device() const;

 private:
  struct Piece;
  enum class Host : std::uint8_t { kSource, kDestination, kNone };
  bool is_host(std::uint64_t address, const protocol::BoxSide& side) const;

  Piece piece_at(std::uint64_t offset, std::uint64_t bytes) const;
  int issue(const Piece& piece, Host which, std::byte* host) const;
  int issue_all(Host which, std::byte* host, std::uint64_t offset, std::size_t bytes) const;

  const DriverFunctions& driver_;
  const HostMemory* const host_memory_;
  void* const stream_;
  const bool is_box_;
  protocol::BoxCopyPayload box_;
  int result_ = 0;
  DriverValue source_array_ = 0;
  DriverValue destination_array_ = 0;
};

}  // namespace gpurun::server
