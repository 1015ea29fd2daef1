// Generated rows on both sides of the wire: a call as the worker unpacks it, a reply as the client
// does.
#include <array>

#include "driver_abi/row.h"
#include "protocol/call.h"
#include "tests/fuzz/fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace gpurun;
  fuzz::Input input(data, size);
  const auto rows = driver_abi::rows();
  const driver_abi::Row& row = rows[input.number<std::uint16_t>() % rows.size()];
  static protocol::UnpackedCall call;  // Reused, as the worker does.
  // Private and aligned, as a record's payload is.
  std::vector<std::uint64_t> words((input.rest().size() + 7) / 8);
  std::copy(input.rest().begin(), input.rest().end(), reinterpret_cast<std::byte*>(words.data()));
  const ByteView payload = byte_view(words.data(), input.rest().size());
  if (!call.unpack(row, payload).ok()) return 0;
  for (std::size_t index = 0; index < call.parameter_count(); ++index) {
    std::uint64_t sum = call.minted(index);
    for (const std::uint64_t handle : call.handles(index)) sum += handle;
    for (std::byte& each : call.memory(index)) each = static_cast<std::byte>(sum);
    static_cast<void>(call.word(index));
  }
  protocol::PackedReply reply;
  const Status packed = reply.pack(row, call, 0);
  static_cast<void>(packed);
  return 0;
}
