// Faults: what goes wrong in the verbs double, and when (verbs_double.h has the grammar).
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace gpurun::verbs_double {

enum class RequestKind : std::uint8_t { kSend, kSendImm, kWrite, kWriteImm, kRead, kRecv, kAny };

enum class FaultAction : std::uint8_t {
  kPostFails,
  kCompletesWith,
  kLosesCompletion,
  kPlacesLate,
  kBreaksQp,
  kCutsQp,
  kStopsQp,
  kPortDown,
  kPortUp,
  kMemlock,
  kMrFails,
  kDmaBufFails,
  kOpenFails,
  kDelays
};

struct Fault {
  FaultAction action{};
  RequestKind kind = RequestKind::kAny;
  std::uint64_t at = 0;     // The matching request that it meets, from 1.
  std::uint64_t posts = 0;  // Breaks after so many posts, or bytes. 0: not by this count.
  std::uint64_t bytes = 0;
  std::uint64_t amount = 0;  // An errno, status, number of messages, limit or delay.
  std::uint8_t port = 0;
  std::uint64_t seen = 0;  // Matching requests.
  std::uint64_t seen_bytes = 0;
  bool done = false;
};

// The caller's lock protects it.
class Faults {
 public:
  // Throws WrongSetting, and adds nothing then.
  void add(std::string_view text);
  void clear() { faults_.clear(); }

  // Counts one request. The errno of the post, the status of the request, whether its completion is
  // lost, and by how many messages a received write is late.
  int post_error(RequestKind kind);
  std::optional<ibv_wc_status> status(RequestKind kind);
  bool loses(RequestKind kind);
  std::uint32_t late(RequestKind kind);
  // Counts a registration, kMrFails or kDmaBufFails. Returns the errno that it fails with, or 0.
  int registration_error(FaultAction which);
  // Counts a post of so many bytes, or none (`posts` 0). Returns the faults that it triggers.
  std::vector<Fault> triggered(std::uint64_t posts, std::uint64_t bytes);

  std::optional<std::uint64_t> memlock() const { return amount(FaultAction::kMemlock); }
  int open_error() const { return static_cast<int>(amount(FaultAction::kOpenFails).value_or(0)); }
  std::uint64_t delay_us() const { return amount(FaultAction::kDelays).value_or(0); }

 private:
  const Fault* count(FaultAction action, RequestKind kind);
  std::optional<std::uint64_t> amount(FaultAction action) const;
  std::vector<Fault> faults_;
};

}  // namespace gpurun::verbs_double
