// Search and locking of bytes that no process has. Other processes may take bytes between the two.
#include "emulated/memory_ledger.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>

#include "base/log.h"
#include "emulated/settings.h"

namespace gpurun::emulated {
namespace {

// Bound of the runs of other processes that are looked through. A process has a few. A hostile one
// could have millions, and each question to the kernel takes time in proportion to the runs.
constexpr int kQuestionsMax = 1024;
// Lost races before the memory counts as used up.
constexpr int kLostRacesMax = 64;

struct flock lock_on(std::uint64_t start, std::uint64_t bytes, short type) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = static_cast<off_t>(start);
  lock.l_len = static_cast<off_t>(bytes);
  return lock;
}

}  // namespace

MemoryLedger::MemoryLedger(int file, std::uint64_t bytes_total)
    : file_(file), bytes_total_(bytes_total) {}

bool MemoryLedger::lock(const Run& run) {
  struct flock wanted = lock_on(run.start, run.bytes, F_WRLCK);
  int result = 0;
  do {
    result = fcntl(file_, F_SETLK, &wanted);
  } while (result != 0 && errno == EINTR);
  return result == 0;
}

void MemoryLedger::take_run(const Run& run) {
  if (!runs_.empty() && runs_.back().end() == run.start) {
    runs_.back().bytes += run.bytes;
  } else {
    runs_.push_back(run);
  }
  used_here_ += run.bytes;
}

// The common case: one system call.
bool MemoryLedger::extend(std::uint64_t bytes) {
  const std::uint64_t start = runs_.empty() ? 0 : runs_.back().end();
  if (bytes > bytes_total_ - start) return false;
  const Run more{start, bytes};
  // If an earlier run of ours follows, the lock would succeed and prove nothing.
  for (const Run& run : runs_) {
    if (run.start < more.end() && more.start < run.end()) return false;
  }
  if (!lock(more)) return false;
  take_run(more);
  return true;
}

// What no other process has, in no order. It includes our own runs, because a process's own locks
// do not block it. The kernel names one blocking lock per question, so each costs two questions.
std::vector<MemoryLedger::Run> MemoryLedger::not_others() const {
  std::vector<Run> found;
  std::vector<Run> unknown = {{0, bytes_total_}};
  for (int questions = 0; !unknown.empty() && questions < kQuestionsMax; ++questions) {
    const Run range = unknown.back();
    unknown.pop_back();
    struct flock other = lock_on(range.start, range.bytes, F_WRLCK);
    if (fcntl(file_, F_GETLK, &other) != 0) break;
    if (other.l_type == F_UNLCK) {
      found.push_back(range);
      continue;
    }
    const auto first = static_cast<std::uint64_t>(other.l_start);
    // Length 0 means to the end of any file.
    const std::uint64_t end =
        other.l_len == 0 ? range.end() : first + static_cast<std::uint64_t>(other.l_len);
    if (end < range.end()) unknown.push_back({end, range.end() - end});
    if (first > range.start) unknown.push_back({range.start, first - range.start});
  }
  return found;
}

// What no process has.
std::vector<MemoryLedger::Run> MemoryLedger::gaps() const {
  std::vector<Run> ours = runs_;
  std::sort(ours.begin(), ours.end(), [](const Run& a, const Run& b) { return a.start < b.start; });
  std::vector<Run> found;
  for (const Run& range : not_others()) {
    std::uint64_t start = range.start;
    for (const Run& run : ours) {
      if (run.end() <= start || run.start >= range.end()) continue;
      if (run.start > start) found.push_back({start, run.start - start});
      start = run.end();
    }
    if (start < range.end()) found.push_back({start, range.end() - start});
  }
  return found;
}

bool MemoryLedger::take(std::uint64_t bytes) {
  if (bytes > bytes_total_ - used_here_) return false;
  if (file_ < 0) {
    used_here_ += bytes;
    return true;
  }
  if (bytes == 0 || extend(bytes)) return true;
  std::uint64_t left = bytes;
  for (int lost = 0; lost <= kLostRacesMax;) {
    const std::vector<Run> found = gaps();
    std::uint64_t sum = 0;
    Run largest;
    for (const Run& gap : found) {
      sum += gap.bytes;
      if (gap.bytes > largest.bytes) largest = gap;
    }
    if (sum < left) break;
    Run wanted{largest.start, std::min(left, largest.bytes)};
    // Far from the neighbour's run, so that it can grow and runs stay few.
    if (largest.start > 0 && wanted.bytes <= largest.bytes / 2) wanted.start += largest.bytes / 2;
    if (!lock(wanted)) {
      ++lost;
      continue;
    }
    take_run(wanted);
    left -= wanted.bytes;
    if (left == 0) return true;
  }
  give(bytes - left);
  return false;
}

void MemoryLedger::give(std::uint64_t bytes) {
  used_here_ -= bytes;
  while (file_ >= 0 && bytes > 0) {
    Run& last = runs_.back();
    const std::uint64_t part = std::min(bytes, last.bytes);
    last.bytes -= part;
    struct flock lock = lock_on(last.end(), part, F_UNLCK);
    if (fcntl(file_, F_SETLK, &lock) != 0) {
      GPURUN_LOG(kWarning, "emulated device: memory is not given back: %s", std::strerror(errno));
    }
    if (last.bytes == 0) runs_.pop_back();
    bytes -= part;
  }
}

std::uint64_t MemoryLedger::bytes_free() const {
  if (file_ < 0) return bytes_total_ - used_here_;
  std::uint64_t sum = 0;
  for (const Run& range : not_others()) sum += range.bytes;
  return sum - std::min(sum, used_here_);
}

int ledger_file(int ordinal) {
  const auto& files = settings().ledger;
  const auto place = static_cast<std::size_t>(ordinal);
  if (ordinal < 0 || place >= files.size()) return -1;
  const int file = files[place];
  struct stat facts {};
  const int flags = fcntl(file, F_GETFL);
  if (flags >= 0 && (flags & O_ACCMODE) == O_RDWR && fstat(file, &facts) == 0 &&
      S_ISREG(facts.st_mode)) {
    return file;
  }
  GPURUN_LOG(kWarning,
             "GPURUN_EMULATED: ledger: descriptor %d is no file open for reading and writing; "
             "device %d shares its memory with no other process",
             file, ordinal);
  return -1;
}

}  // namespace gpurun::emulated
