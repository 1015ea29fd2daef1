// ObjectCache: generated code on disk, shared by the processes of one user. It checks what it
// returns and drops what is damaged. A cache that cannot be used behaves like an empty one.
//
// The files hold machine code that will be run. So the directory must belong to this user and be
// closed to others.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/unique_fd.h"
#include "emulated/jit/kernel_jit.h"

namespace gpurun::emulated {

// Any thread, and any number of processes on one directory.
class ObjectCache {
 public:
  // Creates the directory (0700) and its parents. kUnavailable or kRefused, with the cause, when it
  // cannot be used.
  static Result<std::unique_ptr<ObjectCache>> open(const std::string& directory,
                                                   std::uint64_t bytes_max);

  // `key_text` is everything that the object depends on.
  std::optional<GeneratedCode> find(std::string_view key_text);
  void store(std::string_view key_text, const GeneratedCode& code);

 private:
  ObjectCache(UniqueFd directory, std::uint64_t bytes_max);
  // Drops the least recently used objects until a fifth of the bound is free. One process at a
  // time.
  void trim();

  const UniqueFd directory_;
  const std::uint64_t bytes_max_;
  std::mutex trim_mutex_;
  std::atomic<std::uint64_t> stored_since_trim_{0};
  std::atomic<std::uint64_t> next_name_{0};
};

}  // namespace gpurun::emulated
