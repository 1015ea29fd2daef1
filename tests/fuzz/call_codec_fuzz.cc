// Call codec: generated rows on both sides of the wire. The worker unpacks a call, and the client
// unpacks a reply. The reply's outputs lie in memory of exactly the size that the call named.
#include <array>
#include <cstring>
#include <memory>
#include <vector>

#include "driver_abi/row.h"
#include "protocol/calls/call.h"
#include "tests/fuzz/fuzz_target.h"

namespace gpurun {
namespace {

// A flag in a row's number: a length, a call of that length, and a reply to it follow.
constexpr std::uint16_t kWithReply = 0x8000;

// Private and aligned memory, like a record's payload.
class Payload {
 public:
  explicit Payload(ByteView bytes) : words_((bytes.size() + 7) / 8), size_(bytes.size()) {
    if (!bytes.empty()) std::memcpy(words_.data(), bytes.data(), bytes.size());
  }
  ByteView view() const { return byte_view(words_.data(), size_); }

 private:
  std::vector<std::uint64_t> words_;
  const std::size_t size_;
};

// The program that made `call`. Its pointers lead to separate pieces of memory, so that the
// sanitizer sees a byte too many in any of them.
class Program {
 public:
  Program(const driver_abi::Row& row, protocol::UnpackedCall& call) {
    for (std::size_t index = 0; index < row.parameters.size(); ++index) {
      const driver_abi::Shape shape = row.parameters[index].shape;
      arguments_[index] = call.arguments()[index];
      if (shape == driver_abi::Shape::kScalar || shape == driver_abi::Shape::kStruct ||
          shape == driver_abi::Shape::kHandle) {
        continue;
      }
      std::memcpy(&pointers_[index], call.arguments()[index], sizeof pointers_[index]);
      arguments_[index] = &pointers_[index];
      if (pointers_[index] == nullptr) continue;
      const MutableBytes memory = call.memory(index);
      memory_[index] = std::make_unique<std::byte[]>(memory.size());
      if (!memory.empty()) std::memcpy(memory_[index].get(), memory.data(), memory.size());
      pointers_[index] = memory_[index].get();
    }
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  void* const* arguments() const { return arguments_.data(); }

 private:
  std::array<void*, protocol::kParametersMax> arguments_{};
  std::array<void*, protocol::kParametersMax> pointers_{};
  std::array<std::unique_ptr<std::byte[]>, protocol::kParametersMax> memory_;
};

void call_driver(protocol::UnpackedCall& call) {
  for (std::size_t index = 0; index < call.parameter_count(); ++index) {
    std::uint64_t sum = call.minted(index);
    for (const std::uint64_t handle : call.handles(index)) sum += handle;
    for (std::byte& each : call.memory(index)) each = static_cast<std::byte>(sum);
    static_cast<void>(call.word(index));
  }
}

}  // namespace
}  // namespace gpurun

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace gpurun;
  fuzz::Input input(data, size);
  const auto rows = driver_abi::rows();
  const auto number = input.number<std::uint16_t>();
  const bool with_reply = (number & kWithReply) != 0;
  const driver_abi::Row& row = rows[(number & ~kWithReply) % rows.size()];
  const Payload called(with_reply ? input.take(input.number<std::uint16_t>()) : input.rest());
  static protocol::UnpackedCall call;  // Reused, as in the worker.
  if (!call.unpack(row, called.view()).ok()) return 0;
  if (with_reply) {
    const Program program(row, call);
    const Payload reply(input.rest());
    static_cast<void>(protocol::unpack_reply(row, program.arguments(), reply.view()));
    return 0;
  }
  const Program program(row, call);
  call_driver(call);
  protocol::PackedReply reply;
  if (!reply.pack(row, call, 0).ok()) return 0;
  static_cast<void>(protocol::unpack_reply(row, program.arguments(), reply.bytes()));
  return 0;
}
