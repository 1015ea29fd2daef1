// Ring: positions count all bytes ever, and their remainders are the places in the ring.
#include "transport/shm/ring.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace gpurun::transport::shm {
namespace {

void wake_writer(RingState& state) noexcept {
  if (state.writer_sleeps.exchange(0) == 0) return;
  const int before = errno;
  syscall(SYS_futex, &state.writer_sleeps, FUTEX_WAKE, 1, nullptr, nullptr, 0);
  errno = before;
}

}  // namespace

std::optional<std::size_t> RingWriter::room() noexcept {
  if (written_ - read_ == ring_.bytes) {
    const std::uint64_t read = ring_.state->read.load();
    if (written_ - read > ring_.bytes) return std::nullopt;
    read_ = read;
  }
  return ring_.bytes - static_cast<std::size_t>(written_ - read_);
}

void RingWriter::put(ByteView bytes) noexcept {
  const auto at = static_cast<std::size_t>(written_) & (ring_.bytes - 1);
  const std::size_t first = std::min(bytes.size(), ring_.bytes - at);
  std::memcpy(ring_.data + at, bytes.data(), first);
  if (first != bytes.size()) std::memcpy(ring_.data, bytes.data() + first, bytes.size() - first);
  written_ += bytes.size();
}

// Sequentially consistent: the reader sets reader_sleeps and then checks for bytes. The writer
// publishes bytes and then checks reader_sleeps.
void RingWriter::publish() noexcept { ring_.state->written.store(written_); }

bool RingWriter::has_to_wake() noexcept {
  RingState& state = *ring_.state;
  return state.reader_sleeps.load() != 0 && state.reader_sleeps.exchange(0) != 0;
}

void RingWriter::sleep(std::chrono::nanoseconds span, const std::atomic<unsigned>& wanted,
                       bool for_room) noexcept {
  RingState& state = *ring_.state;
  state.writer_sleeps.store(1);
  const bool has_room = for_room && written_ - state.read.load() <= ring_.bytes / 2;
  const bool goes_on = is_closed(ring_) || wanted.load() != 0 || has_room || span.count() <= 0;
  if (!goes_on) {
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(span);
    const timespec most = {seconds.count(), static_cast<long>((span - seconds).count())};
    syscall(SYS_futex, &state.writer_sleeps, FUTEX_WAIT, 1, &most, nullptr, 0);
  }
  state.writer_sleeps.store(0);
}

void RingWriter::wake() const noexcept { wake_writer(*ring_.state); }

bool RingWriter::find_untaken(std::uint64_t taken,
                              std::array<ByteView, 2>* untaken) const noexcept {
  const std::uint64_t bytes = written_ - taken;
  if (bytes > ring_.bytes) return false;
  const auto at = static_cast<std::size_t>(taken) & (ring_.bytes - 1);
  const std::size_t first = std::min(static_cast<std::size_t>(bytes), ring_.bytes - at);
  *untaken = {ByteView(ring_.data + at, first),
              ByteView(ring_.data, static_cast<std::size_t>(bytes) - first)};
  return true;
}

bool RingReader::skip_to(std::uint64_t written) noexcept {
  if (written - read_.load(std::memory_order_relaxed) > ring_.bytes) return false;
  written_ = written;
  publish(written);
  return true;
}

std::optional<std::size_t> RingReader::take(MutableBytes into) noexcept {
  std::uint64_t read = read_.load(std::memory_order_relaxed);
  std::size_t taken = 0;
  while (taken < into.size()) {
    if (written_ == read) {
      const std::uint64_t written = ring_.state->written.load(std::memory_order_acquire);
      if (written - read > ring_.bytes) return std::nullopt;
      written_ = written;
      if (written == read) break;
    }
    const auto at = static_cast<std::size_t>(read) & (ring_.bytes - 1);
    const auto come = static_cast<std::size_t>(written_ - read);
    const std::size_t bytes = std::min({come, into.size() - taken, ring_.bytes - at, kStepBytes});
    std::memcpy(into.data() + taken, ring_.data + at, bytes);
    taken += bytes;
    read += bytes;
    publish(read);
  }
  return taken;
}

void RingReader::publish(std::uint64_t read) noexcept {
  read_.store(read, std::memory_order_relaxed);
  RingState& state = *ring_.state;
  state.read.store(read);
  if (state.writer_sleeps.load() != 0 && written_ - read <= ring_.bytes / 2) wake_writer(state);
}

bool RingReader::has_bytes() const noexcept {
  return ring_.state->written.load() != read_.load(std::memory_order_relaxed);
}

void close(const Ring& ring) noexcept {
  ring.state->closed.store(1);
  wake_writer(*ring.state);
}

}  // namespace gpurun::transport::shm
