// Feature agreement: the active bits, and which end to update when there is no agreement.
#include "protocol/control/features.h"

namespace gpurun::protocol {
namespace {

std::string names_of(std::uint64_t bits) {
  std::string names;
  for (unsigned bit = 0; bit < 64; ++bit) {
    if ((bits >> bit & 1) == 0) continue;
    names += (names.empty() ? "" : ", ") + feature_name(bit);
  }
  return names;
}

}  // namespace

std::string feature_name(unsigned bit) {
  switch (bit) {
    case static_cast<unsigned>(Feature::kImagesByHash):
      return "loading code images by their hash";
    case static_cast<unsigned>(Feature::kPushedCompletions):
      return "pushed completions";
    case static_cast<unsigned>(Feature::kDeviceWindows):
      return "windows of device addresses";
    case static_cast<unsigned>(Feature::kResume):
      return "sessions that outlive a connection";
    case static_cast<unsigned>(Feature::kCopiesInTurn):
      return "copies that take their turn in the stream";
    case static_cast<unsigned>(Feature::kUserTokens):
      return "user tokens";
    case static_cast<unsigned>(Feature::kPassedStreams):
      return "calls that pass the queues of streams";
    case static_cast<unsigned>(Feature::kBoxCopies):
      return "copies of boxes and CUDA arrays";
    case static_cast<unsigned>(Feature::kPackedChunks):
      return "packed chunks of bulk";
    case static_cast<unsigned>(Feature::kSpreadCopies):
      return "copies from the device over several connections";
    case static_cast<unsigned>(Feature::kBytesInItems):
      return "small copies from the device on the log channel";
    case static_cast<unsigned>(Feature::kFreesInOrder):
      return "records with a free's place on the device";
    case static_cast<unsigned>(Feature::kHostArena):
      return "host memory that client and worker map";
    case static_cast<unsigned>(Feature::kHostMirror):
      return "host memory with a copy at the worker";
    case static_cast<unsigned>(Feature::kShareableHandles):
      return "shareable handles of device memory";
    case static_cast<unsigned>(Feature::kCarrierChanges):
      return "connections that change their carrier";
    case static_cast<unsigned>(Feature::kFabric):
      return "connections over RDMA";
    case static_cast<unsigned>(Feature::kPulledCopies):
      return "large copies that the worker reads over RDMA";
    case static_cast<unsigned>(Feature::kWrittenResults):
      return "large results that the worker writes over RDMA";
    case static_cast<unsigned>(Feature::kPackedRecords):
      return "packed records of calls";
    case static_cast<unsigned>(Feature::kCounting):
      return "counting in the worker";
    case static_cast<unsigned>(Feature::kFirstCredits):
      return "memory with the answer to an attach";
    case static_cast<unsigned>(Feature::kLateBulk):
      return "bulk connections that join a running session";
    case static_cast<unsigned>(Feature::kEarlyEventWaits):
      return "waits for events that are answered early";
    default:
      return "feature " + std::to_string(bit);
  }
}

Result<std::uint64_t> agree_on_features(const Features& ours, const std::string& our_release,
                                        const Features& theirs, const std::string& their_release,
                                        const char* peer) {
  const std::string other(peer);
  const std::string self = other == "server" ? "client" : "server";
  const std::string they = "the " + other + " (gpurun " + their_release + ")";
  const std::string we = "this " + self + " (gpurun " + our_release + ")";
  if (const std::uint64_t unknown = theirs.required & ~ours.offered; unknown != 0) {
    return Status(Code::kRefused, they + " requires " + names_of(unknown) + ", which " + we +
                                      " does not offer: update the " + self);
  }
  if (const std::uint64_t lacking = ours.required & ~theirs.offered; lacking != 0) {
    return Status(Code::kRefused, they + " does not offer " + names_of(lacking) + ", which " + we +
                                      " requires: update the " + other);
  }
  return ours.offered & theirs.offered;
}

}  // namespace gpurun::protocol
