// Log: one-line records on stderr, safe inside another program's process.
//
// The log has no global constructors, no buffers and no locks. A record is one write(2), and errno
// is preserved. Nothing is written when stderr is closed. The client library and the emulated
// driver use this log. The daemon, the worker and the tools use spdlog. GPURUN_LOG sets the level:
// error, warning (default), info, debug, trace.
#pragma once

namespace gpurun::log {

enum class Level : int { kError, kWarning, kInfo, kDebug, kTrace };

// The level in force. Reads the environment once.
Level level() noexcept;
// Overrides the environment (tests, command-line options).
void set_level(Level level) noexcept;
// Returns false, and leaves `*out` untouched, when `name` is not a level.
bool parse_level(const char* name, Level* out) noexcept;

inline bool enabled(Level wanted) noexcept { return wanted <= level(); }

// Writes "gpurun: warning: <text>\n". Lines over 4 KiB are cut. Safe from any thread, and in a
// signal handler as far as vsnprintf is.
[[gnu::format(printf, 2, 3)]] void write(Level level, const char* format, ...) noexcept;

}  // namespace gpurun::log

#define GPURUN_LOG(severity, ...)                                        \
  do {                                                                   \
    if (::gpurun::log::enabled(::gpurun::log::Level::severity))          \
      ::gpurun::log::write(::gpurun::log::Level::severity, __VA_ARGS__); \
  } while (false)
