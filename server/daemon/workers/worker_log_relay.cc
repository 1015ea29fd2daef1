// WorkerLogRelay: reads what comes, and writes it line by line.
#include "server/daemon/workers/worker_log_relay.h"

#include <errno.h>
#include <unistd.h>

#include <cstdio>

#include "base/printable.h"

namespace gpurun::server {
namespace {

// A sanitizer's report has some tens of KiB.
constexpr std::size_t kWordsMax = std::size_t{256} << 10;
constexpr std::size_t kLineMax = 4096;

}  // namespace

void WorkerLogRelay::pass_on() {
  char piece[4096];
  while (fd_.valid()) {
    const ssize_t got = read(fd_.get(), piece, sizeof piece);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) break;
    if (got <= 0) return end();
    take({piece, static_cast<std::size_t>(got)});
    said_ += static_cast<std::size_t>(got);
    if (said_ > kWordsMax) {
      take("\n(more is not logged)\n");
      return end();
    }
  }
}

void WorkerLogRelay::end() {
  if (!line_.empty()) take("\n");
  fd_.reset();
}

void WorkerLogRelay::take(std::string_view text) {
  for (const char character : text) {
    if (character == '\n' || line_.size() == kLineMax) flush();
    if (character == '\n') continue;
    line_ += character == '\t' ? ' ' : character;
  }
}

void WorkerLogRelay::flush() {
  std::fprintf(stderr, "%s%s\n", prefix_.c_str(), printable(line_).c_str());
  line_.clear();
}

}  // namespace gpurun::server
