// Worker refusals: encoded as texts of a fixed size, so that no length comes from the peer.
#include "protocol/statistics/worker_refusals.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/printable.h"

namespace gpurun::protocol {
namespace {

using Text = std::array<char, kRefusalBytesMax>;
struct Texts {
  Text reads{};
  Text writes{};
  Text gpu_memory{};
};
static_assert(sizeof(Texts) == 3 * kRefusalBytesMax);

Text text_of(const std::string& reason) {
  Text text{};
  std::copy_n(reason.begin(), std::min(reason.size(), text.size()), text.begin());
  return text;
}

std::string shown(const Text& text) {
  return printable(std::string(text.begin(), std::find(text.begin(), text.end(), '\0')));
}

}  // namespace

Bytes encode(const WorkerRefusals& refusals) {
  const Texts texts = {text_of(refusals.reads), text_of(refusals.writes),
                       text_of(refusals.gpu_memory)};
  Bytes bytes(sizeof texts);
  std::memcpy(bytes.data(), &texts, sizeof texts);
  return bytes;
}

Result<WorkerRefusals> parse_worker_refusals(ByteView bytes) {
  Texts texts;
  if (bytes.size() != sizeof texts) {
    return Status(Code::kProtocol,
                  "the worker's refusals have " + std::to_string(bytes.size()) + " bytes");
  }
  std::memcpy(&texts, bytes.data(), sizeof texts);
  return WorkerRefusals{shown(texts.reads), shown(texts.writes), shown(texts.gpu_memory)};
}

}  // namespace gpurun::protocol
