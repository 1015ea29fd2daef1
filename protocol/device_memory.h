// Device memory in windows: what client and worker say about credits (docs/adr/0005). Payloads of
// form raw of cuMemAlloc_v2 (CreditRequest, answered with a CreditGrant) and of cuMemFree_v2
// (MemoryReturn).
//
// A window is a range of device addresses that both ends hold. Pieces of it have physical memory,
// which only the worker maps, where and as much as it decides; inside them the client allocates by
// itself.
#pragma once

#include <cstdint>

namespace gpurun::protocol {

// Where client and worker first look for a window: away from where Linux puts programs, their
// heaps, libraries and stacks.
inline constexpr std::uint64_t kFirstWindowPlace = std::uint64_t{0x2000} << 32;
inline constexpr std::uint64_t kWindowBytesPerByte = 2;  // Addresses are cheap, and holes come.

// A fence of Order::kContext: memory for an allocation that no credit covers. The device is that of
// the record's context.
struct CreditRequest {
  std::uint64_t bytes = 0;  // Of the allocation; 1 to limits::kWindowedBytesMax.
  // Where the client keeps addresses free, and how many, in case there is no window yet. 0: it
  // keeps none, and wants no window.
  std::uint64_t wished_window = 0;
  std::uint64_t window_bytes = 0;  // At most limits::kWindowBytesMax.
  // A piece of `behind_bytes` (1 to `bytes`) at `behind` would do, for what lies right before it is
  // idle; better there than anywhere else. 0: nothing would.
  std::uint64_t behind = 0;
  std::uint64_t behind_bytes = 0;
};
static_assert(sizeof(CreditRequest) == 40);

// With result 0: either a piece, or `plain`. With the answer to an attach (Accept): a piece of a
// window where the worker has put it; a client that cannot hold that wishes another with its first
// request, and the worker takes this one back.
struct CreditGrant {
  std::uint64_t window = 0;  // 0: the device has none, and never will.
  std::uint64_t window_bytes = 0;
  std::uint64_t piece = 0;  // Inside the window, with memory for the allocation and more.
  std::uint64_t piece_bytes = 0;
  std::uint64_t plain = 0;  // The driver's own allocation of exactly what was asked for.
  // The piece is as many: each of so many bytes, the last of what is left, and given back by
  // itself.
  std::uint64_t part_bytes = 0;
};
static_assert(sizeof(CreditGrant) == 48);

enum class ReturnKind : std::uint32_t {
  // The program has freed what `ticket` names to the client. When all that the record's context was
  // given before is complete, the worker says so (ReplyKind::kWorkDone). A record without a context
  // follows the end of the one whose memory it was.
  kFreed = 1,
  // Likewise, then the piece at `piece` loses its memory: the credits are the server's again.
  kPiece = 2,
  // The client cannot hold the window: all of it goes, and the device has none from now on.
  kWindow = 3,
  // Nothing is freed here: the program has freed memory of its own, or while a stream captured, and
  // later calls stand behind what the record's context was given before (kFlagBarrier;
  // docs/adr/0038).
  // An awaited one is answered when that is complete. With Feature::kFreesInOrder only.
  kOrder = 4,
};

// Order::kOrderedHost.
struct MemoryReturn {
  ReturnKind kind = ReturnKind::kFreed;
  std::uint32_t device = 0;  // The worker's ordinal; kPiece and kWindow.
  std::uint64_t ticket = 0;  // kFreed, kPiece: the client's; comes back as ReplyHeader::subject.
  std::uint64_t piece = 0;
};
static_assert(sizeof(MemoryReturn) == 24);

}  // namespace gpurun::protocol
