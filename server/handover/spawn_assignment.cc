// Assignment: a fixed part, followed by the text.
#include "server/handover/spawn_assignment.h"

#include <stdlib.h>

#include <cstring>
#include <utility>

#include "base/descriptor_message.h"
#include "server/handover/device_ledgers.h"

namespace gpurun::server {
namespace {

constexpr const char* kEmulated = "GPURUN_EMULATED";

struct Fixed {
  std::uint32_t magic;
  std::uint32_t leased;
  std::uint64_t memory_bytes;
  std::uint32_t gpus;
  std::uint32_t zero;
};
constexpr std::uint32_t kAssignmentMagic = 0x67697665;

}  // namespace

Status send_assignment(int socket, const Assignment& assignment) {
  if (assignment.visible.size() > kVisibleBytesMax) {
    return Status(Code::kInternal, "a list of GPUs that is too long for a worker");
  }
  const Fixed fixed{kAssignmentMagic, assignment.leased ? 1u : 0u, assignment.memory_bytes,
                    assignment.gpus, 0};
  Bytes bytes(sizeof fixed + assignment.visible.size());
  std::memcpy(bytes.data(), &fixed, sizeof fixed);
  std::memcpy(bytes.data() + sizeof fixed, assignment.visible.data(), assignment.visible.size());
  std::vector<int> ledgers;
  for (const UniqueFd& ledger : assignment.ledgers) ledgers.push_back(ledger.get());
  return send_message(socket, bytes, ledgers, Wait::kNever);
}

Result<Assignment> receive_assignment(int socket) {
  Result<DescriptorMessage> message =
      receive_message(socket, sizeof(Fixed) + kVisibleBytesMax, Wait::kYes);
  if (!message.ok()) return message.status();
  Fixed fixed{};
  if (message->bytes.size() < sizeof fixed) {
    return Status(Code::kProtocol, "gpurund named no GPUs");
  }
  std::memcpy(&fixed, message->bytes.data(), sizeof fixed);
  if (fixed.magic != kAssignmentMagic) return Status(Code::kProtocol, "gpurund named no GPUs");
  Assignment assignment;
  assignment.memory_bytes = fixed.memory_bytes;
  assignment.leased = fixed.leased != 0;
  assignment.gpus = fixed.gpus;
  assignment.visible.assign(reinterpret_cast<const char*>(message->bytes.data()) + sizeof fixed,
                            message->bytes.size() - sizeof fixed);
  assignment.ledgers = std::move(message->attached);
  return assignment;
}

void obey(Assignment& assignment) {
  setenv("CUDA_VISIBLE_DEVICES", assignment.visible.c_str(), 1);
  if (assignment.ledgers.empty()) return;
  std::vector<int> ledgers;
  for (UniqueFd& ledger : assignment.ledgers) ledgers.push_back(ledger.release());
  const char* told = getenv(kEmulated);
  setenv(kEmulated, DeviceLedgers::setting(told == nullptr ? "" : told, ledgers).c_str(), 1);
}

}  // namespace gpurun::server
