// What measuring says of a chunk.
#include "protocol/chunk_packer.h"

#include <lz4.h>

#include <bit>

namespace gpurun::protocol {
namespace {

constexpr double kKeep = 7.0 / 8;
// What a send costs that carries nothing: few bytes say nothing of the connection.
constexpr double kSendNs = 20'000;

double nanoseconds(ChunkPacker::Clock::duration took) {
  return std::chrono::duration<double, std::nano>(took).count();
}

}  // namespace

ChunkPacker::Packed ChunkPacker::pack(ByteView chunk) {
  if (!enabled_ || chunk.size() < kChunkBytesMin) return {};
  const std::uint64_t pages = pages_with_bytes(chunk);
  const std::size_t count = (chunk.size() + kPageBytes - 1) / kPageBytes;
  const std::size_t zero = count - static_cast<std::size_t>(std::popcount(pages));
  Packed sparse;
  if (zero != 0) {
    sparse = pack_sparse(chunk, pages);
    if (zero < kZeroPagesPerRun * sparse.parts.size()) sparse = {};
  }
  if (!compresses()) {
    // The codec may have been measured in a bad moment.
    if (codec_bytes_ != 0 && ++passed_over_ == kTrialEveryMax) {
      codec_bytes_ = codec_ns_ = codec_out_ = 0;
      passed_over_ = 0;
    }
    return sparse;
  }
  // The codec makes zeros small as well, and what is between them.
  const double left = static_cast<double>(chunk.size()) * left_of_a_byte();
  if (sparse.packed && static_cast<double>(sparse.bytes) <= left) return sparse;
  if (until_trial_ != 0) {
    --until_trial_;
    return sparse;
  }
  const Packed compressed = compress(chunk);
  return compressed.packed ? compressed : sparse;
}

ChunkPacker::Packed ChunkPacker::pack_sparse(ByteView chunk, std::uint64_t pages) {
  Packed packed;
  std::size_t parts = 0;
  for_each_run(pages, chunk.size(), [&](std::size_t first, std::size_t bytes, bool present) {
    if (!present) return;
    parts_[parts++] = chunk.subspan(first, bytes);
    packed.bytes += bytes;
  });
  packed.packed = true;
  packed.head.pages = pages;
  packed.parts = std::span(parts_.data(), parts);
  return packed;
}

// Where nothing is known of the codec's yield, or all that is known is what it could not make
// smaller, half is assumed, and a trial soon knows.
double ChunkPacker::left_of_a_byte() const noexcept {
  return codec_bytes_ == 0 || trial_every_ > 1 ? 0.5 : codec_out_ / codec_bytes_;
}

// A byte that is compressed costs the codec's time and the wire's for what is left of it.
bool ChunkPacker::compresses() const noexcept {
  if (!enabled_ || soon_.bytes == 0) return false;
  const double codec = codec_bytes_ == 0 ? kCodecGuessNs : codec_ns_ / codec_bytes_;
  // Where it was of no use, what a trial costs at most is the codec's time: at its rarest a share
  // of 1/kTrialEveryMax of a chunk's, and never more than the wire's.
  if (trial_every_ > 1) return codec < wire() / 2;
  return codec + wire() * left_of_a_byte() < wire() * kWorthwhileShare;
}

void ChunkPacker::wait_for_trial() noexcept {
  trial_every_ = std::min(trial_every_ + 1, kTrialEveryMax);
  until_trial_ = trial_every_ / 2 + static_cast<unsigned>(chance_() % trial_every_);
}

ChunkPacker::Packed ChunkPacker::compress(ByteView chunk) {
  state_.resize(static_cast<std::size_t>(LZ4_sizeofState()));
  block_.resize(limits::kBulkChunkBytes);
  const auto most = static_cast<int>(static_cast<double>(chunk.size()) * kWorthwhileShare);
  const Clock::time_point start = Clock::now();
  // A copy: what the codec refers back to must be what it has read before.
  taken_.assign(chunk.begin(), chunk.end());
  // 0: it would be larger than `most`.
  const int bytes = LZ4_compress_fast_extState(
      state_.data(), reinterpret_cast<const char*>(taken_.data()),
      reinterpret_cast<char*>(block_.data()), static_cast<int>(taken_.size()), most, 1);
  const Clock::duration took =
      codec_time_ != Clock::duration{} ? codec_time_ : Clock::now() - start;
  const std::size_t out = bytes > 0 ? static_cast<std::size_t>(bytes) : chunk.size();
  codec_bytes_ = codec_bytes_ * kKeep + static_cast<double>(chunk.size());
  codec_ns_ = codec_ns_ * kKeep + nanoseconds(took);
  codec_out_ = codec_out_ * kKeep + static_cast<double>(out);
  if (bytes <= 0) {
    wait_for_trial();
    return {};
  }
  if (trial_every_ > 1) {  // What came before was of another kind.
    codec_bytes_ = static_cast<double>(chunk.size());
    codec_ns_ = nanoseconds(took);
    codec_out_ = static_cast<double>(out);
  }
  trial_every_ = 1;
  until_trial_ = 0;
  Packed packed;
  packed.packed = true;
  packed.head.packing = Packing::kLz4;
  parts_[0] = ByteView(block_).first(out);
  packed.parts = std::span(parts_.data(), 1);
  packed.bytes = out;
  return packed;
}

void ChunkPacker::Pace::add(double of_bytes, double of_ns, double horizon) noexcept {
  const double keep = horizon / (horizon + of_bytes);
  bytes = bytes * keep + of_bytes;
  ns = ns * keep + of_ns;
}

void ChunkPacker::sent(std::size_t wire_bytes, Clock::duration took) noexcept {
  if (wire_bytes == 0) return;
  const auto bytes = static_cast<double>(wire_bytes);
  double ns = std::max(0.0, nanoseconds(took) - kSendNs);
  // What holds up a few bytes is not the link's pace; that they were quick may be.
  if (wire_bytes < kChunkBytesMin) ns = soon_.bytes == 0 ? 0 : std::min(ns, bytes * wire());
  soon_.add(bytes, ns, kSoonBytes);
  late_.add(bytes, ns, kLateBytes);
}

}  // namespace gpurun::protocol
