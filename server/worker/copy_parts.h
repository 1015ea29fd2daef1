// What a copy record asks of the driver, whole or for a part of its bytes: between memory that is
// one line, or of a box, of which a side may be a CUDA array (protocol::kFlagBox).
//
// The executor's thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "protocol/record.h"
#include "server/worker/call.h"

namespace gpurun::server {

class CopyParts {
 public:
  // Reads the payload, whose sizes parse_record() has checked, and looks up its arrays.
  explicit CopyParts(Call& call);

  // 0, or the CUresult of an array that is none.
  int result() const { return result_; }
  const protocol::CopyPayload& copy() const { return box_.copy; }
  // Of a copy from the device: over how many its bytes may go.
  std::uint64_t connections() const { return box_.copy.destination; }

  // The bytes [offset, offset + bytes) of what is copied, from or to `host`, in the call's stream.
  // The driver's CUresult.
  int in(const std::byte* host, std::uint64_t offset, std::size_t bytes) const;
  int out(std::byte* host, std::uint64_t offset, std::size_t bytes) const;
  // All of it, within the device.
  int on_device() const;

 private:
  struct Piece;
  enum class Host : std::uint8_t { kSource, kDestination, kNone };

  Piece piece_at(std::uint64_t offset, std::uint64_t bytes) const;
  int issue(const Piece& piece, Host which, std::byte* host) const;
  int issue_all(Host which, std::byte* host, std::uint64_t offset, std::size_t bytes) const;

  const DriverFunctions& driver_;
  void* const stream_;
  const bool is_box_;
  protocol::BoxCopyPayload box_;
  int result_ = 0;
  DriverValue source_array_ = 0;
  DriverValue destination_array_ = 0;
};

}  // namespace gpurun::server
