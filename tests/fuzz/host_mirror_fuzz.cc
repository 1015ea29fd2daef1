// Host mirror: pieces that a peer sends, to the client's copy and to the worker's. No byte outside
// the memory that both agreed on changes. What one end sends of its own makes both copies alike.
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "client/host_memory/host_mirror.h"
#include "server/handlers/memory/host_mirror.h"
#include "tests/fuzz/fuzz_target.h"

namespace {

using namespace gpurun;
using protocol::HostMirrorHead;
using protocol::HostMirrorPiece;
using protocol::HostMirrorRange;

constexpr std::size_t kPage = 4096, kMemory = 16 * kPage;
// In the memory: a block, and in it an allocation of which some bytes at the ends are others'.
constexpr std::size_t kBlock = 4 * kPage, kBlockBytes = 8 * kPage;
constexpr std::size_t kAllocation = 6 * kPage + 128, kAllocationBytes = kPage + 192;
constexpr std::size_t kFirst = 5, kLast = 60;

struct Memory {
  Memory()
      : bytes(static_cast<std::byte*>(
            mmap(nullptr, kMemory, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {}
  ~Memory() { munmap(bytes, kMemory); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  std::uint64_t address() const { return reinterpret_cast<std::uint64_t>(bytes); }
  bool is_zero(std::size_t from, std::size_t to) const {
    return std::all_of(bytes + from, bytes + to,
                       [](std::byte each) { return each == std::byte{}; });
  }

  std::byte* const bytes;
};

// Pieces near the memory, or the input as it is.
Bytes pieces_of(fuzz::Input& input, std::uint64_t near) {
  Bytes pieces;
  const auto append = [&pieces](ByteView more) {
    pieces.insert(pieces.end(), more.begin(), more.end());
  };
  for (unsigned count = input.number<std::uint8_t>() % 8; count > 0; --count) {
    HostMirrorPiece piece;
    piece.address = near + input.number<std::uint32_t>() % (kMemory + 2 * kPage) - kPage;
    piece.bytes = input.number<std::uint16_t>();
    piece.in_turn = input.number<std::uint8_t>() % 3;
    const auto fill = std::byte{input.number<std::uint8_t>()};
    // Most are whole lines.
    if (input.number<std::uint8_t>() % 8 != 0) {
      piece.address -= piece.address % protocol::kMirrorLineBytes;
      piece.bytes &= ~63U;
      piece.in_turn %= 2;
    }
    append(bytes_of(piece));
    append(Bytes(piece.bytes, fill));
  }
  if (input.number<std::uint8_t>() % 2 == 0) append(input.rest());
  return pieces;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  const Memory ours, theirs;  // The client's, and the worker's. Their places differ here.
  client::HostMirror client;
  server::HostMirror worker;
  const std::uint64_t address = ours.address() + kAllocation;
  GPURUN_FUZZ_CHECK(client.add(ours.address() + kBlock, kBlockBytes, ours.bytes + kBlock, false));
  client.add_allocation(address, kAllocationBytes, input.number<std::uint8_t>() % 2 != 0, kFirst,
                        kLast);
  GPURUN_FUZZ_CHECK(worker.add(theirs.address() + kBlock, kBlockBytes));

  (void)client.take(pieces_of(input, ours.address()));
  GPURUN_FUZZ_CHECK(ours.is_zero(0, kAllocation + kFirst));
  GPURUN_FUZZ_CHECK(ours.is_zero(kAllocation + kAllocationBytes - kLast, kMemory));

  (void)worker.write(pieces_of(input, theirs.address()), theirs.address(), kMemory);
  GPURUN_FUZZ_CHECK(theirs.is_zero(0, kBlock));
  GPURUN_FUZZ_CHECK(theirs.is_zero(kBlock + kBlockBytes, kMemory));

  // Questions of the client, in any order and size, that the handler has let through.
  HostMirrorRange range;
  range.address = (theirs.address() + input.number<std::uint32_t>() % kMemory) & ~std::uint64_t{63};
  range.bytes = input.number<std::uint32_t>() & ~63U;
  Bytes reply(64 + input.number<std::uint16_t>() + sizeof(HostMirrorPiece));
  std::uint64_t from = 0, next = 0;
  for (int steps = 0; steps < 64; ++steps) {
    GPURUN_FUZZ_CHECK(worker.collect({&range, 1}, from, reply, &next) <= reply.size());
    if (next == 0) break;
    GPURUN_FUZZ_CHECK(next > from);
    from = next;
  }
  return 0;
}
