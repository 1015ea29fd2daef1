// Device memory in windows: the messages of client and worker about credits (docs/adr/0005). They
// are payloads of form kRaw: of cuMemAlloc_v2 (CreditRequest, answered with a CreditGrant), and of
// cuMemFree_v2 (MemoryReturn).
//
// A window is a range of device addresses that both ends reserve. Only the worker maps physical
// memory to pieces of it, and decides where and how much. The client allocates inside these pieces
// by itself.
#pragma once

#include <cstdint>

namespace gpurun::protocol {

// Where client and worker first try to place a window. It is away from where Linux puts programs,
// heaps, libraries and stacks.
inline constexpr std::uint64_t kFirstWindowPlace = std::uint64_t{0x2000} << 32;
inline constexpr std::uint64_t kWindowBytesPerByte = 2;  // Addresses are cheap, and holes will
                                                         // come.

// Asks for memory for an allocation that no credit covers. A fence of Order::kContext. The device
// is that of the record's context.
struct CreditRequest {
  std::uint64_t bytes = 0;  // Of the allocation: 1 to limits::kWindowedBytesMax.
  // An address range that the client keeps free, in case there is no window yet. 0: the client
  // keeps none and wants no window.
  std::uint64_t wished_window = 0;
  std::uint64_t window_bytes = 0;  // At most limits::kWindowBytesMax.
  // A piece of `behind_bytes` (1 to `bytes`) at `behind` is enough, because the memory right before
  // it is idle. The client prefers it to any other place. 0: there is no such place.
  std::uint64_t behind = 0;
  std::uint64_t behind_bytes = 0;
};
static_assert(sizeof(CreditRequest) == 40);

// With result 0, holds either a piece or `plain`. In the answer to an attach (Accept) it holds a
// piece of a window that the worker has placed. A client that cannot reserve that window asks for
// another with its first request, and the worker takes the first one back.
struct CreditGrant {
  std::uint64_t window = 0;  // 0: the device has none, and never will.
  std::uint64_t window_bytes = 0;
  std::uint64_t piece = 0;  // Inside the window, with memory for the allocation and more.
  std::uint64_t piece_bytes = 0;
  std::uint64_t plain = 0;  // The driver's own allocation of exactly what was asked for.
  // The piece consists of parts of this many bytes. The last part has the rest. Each part is given
  // back separately.
  std::uint64_t part_bytes = 0;
};
static_assert(sizeof(CreditGrant) == 48);

enum class ReturnKind : std::uint32_t {
  // The program has freed the memory that the client knows as `ticket`. When all earlier work of
  // the record's context is complete, the worker sends ReplyKind::kWorkDone. A record without a
  // context follows the end of the context that had the memory.
  kFreed = 1,
  // As kFreed, and then the piece at `piece` is unmapped: its credits are the server's again.
  kPiece = 2,
  // The client cannot reserve the window. The window is removed, and the device gets none from now
  // on.
  kWindow = 3,
  // Frees nothing here. The program has freed its own memory, or freed while a stream captured.
  // Later calls run behind the context's earlier work (kFlagBarrier, docs/adr/0038). When awaited,
  // it is answered when that work is complete. Only with Feature::kFreesInOrder.
  kOrder = 4,
};

// Order::kOrderedHost.
struct MemoryReturn {
  ReturnKind kind = ReturnKind::kFreed;
  std::uint32_t device = 0;  // The worker's ordinal. kPiece and kWindow.
  std::uint64_t ticket = 0;  // kFreed, kPiece: the client's. Comes back as ReplyHeader::subject.
  std::uint64_t piece = 0;
};
static_assert(sizeof(MemoryReturn) == 24);

}  // namespace gpurun::protocol
