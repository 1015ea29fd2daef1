// One-line records on stderr, safe inside a stranger's process: no global constructors, no buffers,
// no locks, one write(2) a record, errno preserved, and nothing at all when stderr is closed.
//
// The client library and the emulated driver log here; daemon, worker and tools use spdlog.
// GPURUN_LOG sets the level: error, warning (default), info, debug, trace.
#pragma once

namespace gpurun::log {

enum class Level : int { kError, kWarning, kInfo, kDebug, kTrace };

// The level in force; reads the environment once.
Level level() noexcept;
// Overrides the environment (tests, command-line options).
void set_level(Level level) noexcept;
// False, and `*out` untouched, when `name` names no level.
bool parse_level(const char* name, Level* out) noexcept;

inline bool enabled(Level wanted) noexcept { return wanted <= level(); }

// Writes "gpurun: warning: <text>\n"; lines over 4 KiB are cut. Safe from any thread, and in a
// signal handler as far as vsnprintf is.
[[gnu::format(printf, 2, 3)]] void write(Level level, const char* format, ...) noexcept;

}  // namespace gpurun::log

#define GPURUN_LOG(severity, ...)                                        \
  do {                                                                   \
    if (::gpurun::log::enabled(::gpurun::log::Level::severity))          \
      ::gpurun::log::write(::gpurun::log::Level::severity, __VA_ARGS__); \
  } while (false)
