// Control messages: frames and messages that either end may receive before any proof, and the
// checks that both ends apply to them.
#include "protocol/control/control.h"
#include "protocol/control/rows_agreement.h"
#include "tests/fuzz/fuzz_target.h"

namespace gpurun::protocol {
namespace {

void agree(const ControlMessage& message) {
  if (const auto* hello = std::get_if<Hello>(&message)) {
    static_cast<void>(check_version(hello->version, "client"));
  } else if (const auto* challenge = std::get_if<Challenge>(&message)) {
    static_cast<void>(check_version(challenge->version, "server"));
  } else if (const auto* accept = std::get_if<Accept>(&message)) {
    GPURUN_FUZZ_CHECK(accept->rows.size() < limits::kRowsMax);
    static_cast<void>(rows_lacking(driver_abi::rows(), accept->rows, kRelease, accept->release));
    static_cast<void>(agree_on_features(our_features(Sender::kClient), kRelease, accept->features,
                                        accept->release, "server"));
  } else if (const auto* attach = std::get_if<Attach>(&message)) {
    // Of another version nothing else was read. The daemon says which side to update, and no more.
    if (!check_version(attach->version, "client").ok()) return;
    GPURUN_FUZZ_CHECK(attach->index < attach->count && attach->count <= kConnectionsMax);
  } else if (const auto* listing = std::get_if<Listing>(&message)) {
    GPURUN_FUZZ_CHECK(listing->gpus.size() <= kListedGpusMax);
  }
}

}  // namespace
}  // namespace gpurun::protocol

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace gpurun;
  using namespace gpurun::protocol;
  const ByteView bytes = byte_view(data, size);
  const Result<ControlHeader> header = parse_control_header(bytes, limits::kHelloBytesMax);
  if (header.ok()) {
    GPURUN_FUZZ_CHECK(header->payload_bytes <= limits::kHelloBytesMax);
  }
  const Result<ControlMessage> message = decode(bytes);
  if (!message.ok()) return 0;
  agree(*message);
  // A decoded message encodes again, to a message with the same meaning.
  const Bytes again = encode(*message);
  const Result<ControlMessage> heard = decode(again);
  GPURUN_FUZZ_CHECK(heard.ok() && heard->index() == message->index());
  GPURUN_FUZZ_CHECK(encode(*heard) == again);
  return 0;
}
