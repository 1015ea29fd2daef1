// RingCarrier: the rings do the work.
#include "transport/shm/ring_carrier.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace gpurun::transport::shm {
namespace {

constexpr std::size_t kPiecesMax = 16;

}  // namespace

RingCarrier::RingCarrier(SharedMemory memory, Side side) noexcept
    : memory_(std::move(memory)),
      out_ring_(side == Side::kOffered ? memory_.to_taker() : memory_.to_offerer()),
      in_ring_(side == Side::kOffered ? memory_.to_offerer() : memory_.to_taker()),
      writer_(out_ring_),
      reader_(in_ring_) {}

carrier::Moved RingCarrier::put(PartCursor& cursor) {
  const std::optional<std::size_t> room = writer_.room();
  if (!room) return {0, carrier::Found::kBroken};
  std::array<ByteView, kPiecesMax> pieces;
  std::size_t bytes = 0;
  const std::size_t count = cursor.look(pieces, std::min(*room, kStepBytes), &bytes);
  if (bytes == 0) return {};
  for (std::size_t i = 0; i < count; ++i) writer_.put(pieces[i]);
  cursor.advance(bytes);
  writer_.publish();
  return {bytes, carrier::Found::kWorks};
}

carrier::Moved RingCarrier::take(MutableBytes into) noexcept {
  const std::optional<std::size_t> taken = reader_.take(into);
  if (!taken) return {0, carrier::Found::kBroken};
  return {*taken, carrier::Found::kWorks};
}

void RingCarrier::close() noexcept {
  shm::close(out_ring_);
  shm::close(in_ring_);
}

}  // namespace gpurun::transport::shm
