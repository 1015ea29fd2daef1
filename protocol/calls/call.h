// Generic codec: packs and unpacks a generated row's call and reply from the row alone
// (protocol/calls/call.capnp).
//
// The client packs arguments as libffi takes them: `arguments[i]` points to the storage of the i-th
// argument. The server unpacks them into such storage of its own. Neither end knows any function by
// name. Handles here are the client's. The caller of the driver translates them in place after
// unpack(), and back before pack().
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "driver_abi/row.h"

namespace gpurun::protocol {

// No CUDA function takes more. The table's generator checks it.
inline constexpr std::size_t kParametersMax = 24;

// Memory for one serialized message: on the stack except for large arrays. Reusable. One thread.
class MessageBuffer {
 public:
  // Returns zeroed words for a message of at most `word_count` words.
  std::span<std::uint64_t> reserve(std::size_t word_count);

  static constexpr std::size_t kSmallWords = 192;
  // Returns kSmallWords words with undefined content.
  std::uint64_t* small() { return small_.data(); }

 private:
  std::array<std::uint64_t, kSmallWords> small_;
  std::vector<std::uint64_t> large_;
};

// True for an array of graph nodes that comes out. The program has no handles yet for nodes that a
// capture or a clone made. So the array goes in with one freshly minted handle in each place.
inline bool holds_spares(const driver_abi::Parameter& parameter) {
  return parameter.shape == driver_abi::Shape::kHandleArray &&
         parameter.direction == driver_abi::Direction::kOut &&
         parameter.handle == driver_abi::HandleKind::kGraphNode;
}

// A call, ready for the command log.
class PackedCall {
 public:
  PackedCall() = default;
  PackedCall(const PackedCall&) = delete;
  PackedCall& operator=(const PackedCall&) = delete;

  // `minted` holds one value for each kHandlePointee that comes out, in parameter order.
  //   kCuda          the error that the program gets for a NULL that is not allowed
  //   (row.null_error). kTooLarge      over a bound of protocol/limits.h. kInternal      the row
  //   needs custom code.
  Status pack(const driver_abi::Row& row, void* const* arguments,
              std::span<const std::uint64_t> minted);

  // Valid until the next pack() or the end of this object.
  ByteView bytes() const { return bytes_; }

 private:
  struct Plan;
  // False: the message needs the builder, or there is an error that plan() reports.
  bool pack_words(const driver_abi::Row& row, void* const* arguments,
                  std::span<const std::uint64_t> minted);
  static Status plan(const driver_abi::Row& row, void* const* arguments,
                     std::span<const std::uint64_t> minted, Plan& plan);

  MessageBuffer buffer_;
  ByteView bytes_;
};

// A call on the server: private copies of everything, as libffi takes them.
class UnpackedCall {
 public:
  UnpackedCall() = default;
  UnpackedCall(const UnpackedCall&) = delete;
  UnpackedCall& operator=(const UnpackedCall&) = delete;

  // Checks every length against the row and protocol/limits.h before it copies anything. kProtocol
  // for anything that PackedCall does not make. `bytes` must be memory that the peer cannot write.
  // Reusable.
  Status unpack(const driver_abi::Row& row, ByteView bytes);

  // For ffi_call: one pointer to storage for each parameter.
  void** arguments() { return arguments_.data(); }
  // The handle slots of parameter `index`: one for kHandle and kHandlePointee, `count` for
  // kHandleArray, none for NULL or another shape. Slots of handles that only come out hold 0, or
  // spares (holds_spares()).
  std::span<std::uint64_t> handles(std::size_t index);
  // The value that the client minted for parameter `index`, a kHandlePointee that comes out. 0 for
  // NULL.
  std::uint64_t minted(std::size_t index) const { return minted_[index]; }
  // The memory that parameter `index` points to (for a kStruct: itself). Empty for NULL.
  MutableBytes memory(std::size_t index);
  // The value of a kScalar or kHandle.
  std::uint64_t word(std::size_t index) const { return words_[index]; }
  std::size_t parameter_count() const { return parameter_count_; }

 private:
  struct Blobs;
  bool unpack_words(const driver_abi::Row& row, ByteView bytes);
  Status place(const driver_abi::Row& row, const Blobs& blobs);
  void fill(const driver_abi::Row& row, const Blobs& blobs);

  std::size_t parameter_count_ = 0;
  // Argument storage: the value itself, or the pointer to memory_.
  std::array<std::uint64_t, kParametersMax> words_;
  std::array<std::uint64_t, kParametersMax> minted_;
  std::array<std::size_t, kParametersMax> offset_;
  std::array<std::size_t, kParametersMax> size_;
  std::array<void*, kParametersMax> arguments_;
  std::vector<std::uint64_t> memory_;
};

// A reply, ready to be sent.
class PackedReply {
 public:
  PackedReply() = default;
  PackedReply(const PackedReply&) = delete;
  PackedReply& operator=(const PackedReply&) = delete;

  // Includes outputs only when `result` is 0. kTooLarge: over limits::kRecordBytesMax.
  Status pack(const driver_abi::Row& row, UnpackedCall& call, int result);
  ByteView bytes() const { return bytes_; }

 private:
  MessageBuffer buffer_;
  ByteView bytes_;
};

// Writes a reply's outputs to where the program's `arguments` point, each exactly as large as the
// program said. Writes all of them or none. `arguments` are those of the call. Returns the driver's
// CUresult. kProtocol: the reply does not fit the row.
Result<int> unpack_reply(const driver_abi::Row& row, void* const* arguments, ByteView bytes);

}  // namespace gpurun::protocol
