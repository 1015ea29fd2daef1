// write(): a record is built in a buffer on the stack and leaves with one write(2).
#include "base/log.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace gpurun::log {
namespace {

constexpr const char* kNames[] = {"error", "warning", "info", "debug", "trace"};
constexpr int kUnset = -1;
std::atomic<int> current_level{kUnset};

}  // namespace

bool parse_level(const char* name, Level* out) noexcept {
  for (int index = 0; index < 5; ++index) {
    if (std::strcmp(name, kNames[index]) == 0) {
      *out = static_cast<Level>(index);
      return true;
    }
  }
  return false;
}

Level level() noexcept {
  const int known = current_level.load(std::memory_order_relaxed);
  if (known != kUnset) return static_cast<Level>(known);
  Level chosen = Level::kWarning;
  if (const char* wanted = std::getenv("GPURUN_LOG")) {
    const bool understood = parse_level(wanted, &chosen);
    current_level.store(static_cast<int>(chosen), std::memory_order_relaxed);
    if (!understood) {
      write(Level::kWarning, "GPURUN_LOG is '%s'; it may be error, warning, info, debug or trace",
            wanted);
    }
  }
  current_level.store(static_cast<int>(chosen), std::memory_order_relaxed);
  return chosen;
}

void set_level(Level level) noexcept {
  current_level.store(static_cast<int>(level), std::memory_order_relaxed);
}

void write(Level level, const char* format, ...) noexcept {
  const int saved_errno = errno;
  char line[4096];
  int used = std::snprintf(line, sizeof line, "gpurun: %s: ", kNames[static_cast<int>(level)]);
  va_list arguments;
  va_start(arguments, format);
  const int wanted = std::vsnprintf(line + used, sizeof line - used - 1, format, arguments);
  va_end(arguments);
  if (wanted > 0) used += wanted;
  if (used > static_cast<int>(sizeof line) - 2) used = sizeof line - 2;
  line[used++] = '\n';
  // A closed or full stderr is the program's business, and there is no other place to report it.
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line, static_cast<size_t>(used));
  errno = saved_errno;
}

}  // namespace gpurun::log
