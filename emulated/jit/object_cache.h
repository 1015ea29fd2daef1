// ObjectCache: generated code on disk, shared by the processes of one user. It checks what it
// returns and drops what is damaged. A cache that cannot be used behaves like an empty one.
//
// The files hold machine code that will be run. So the directory must belong to this user, and no
// other user may write it.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/cache_folder.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "emulated/jit/kernel_jit.h"

namespace gpurun::emulated {

// Any thread, and any number of processes on one directory.
class ObjectCache {
 public:
  // Creates the directory (0700) and its parents. `bytes_max` bounds all objects, except those of
  // the last additions (CacheRules). kUnavailable or kRefused, with the cause, when it cannot be
  // used.
  static Result<std::unique_ptr<ObjectCache>> open(const std::string& directory,
                                                   std::uint64_t bytes_max);

  // The right to compile one object, until it is destroyed. Other processes, and other threads of
  // this one, wait for the code instead of compiling it, too.
  class Turn {
   public:
    // False: another has it, or there are no turns. Nothing is wrong with compiling then.
    bool taken() const { return lock_.valid(); }
    Turn(Turn&&) noexcept = default;
    Turn& operator=(Turn&&) = delete;
    ~Turn();

   private:
    friend class ObjectCache;
    explicit Turn(UniqueFd lock) : lock_(std::move(lock)) {}
    UniqueFd lock_;
  };
  // Waits for at most `patience` while another has the turn. A process that dies loses it.
  Turn take_turn(std::string_view key_text, std::chrono::milliseconds patience) const;

  // `key_text` is everything that the object depends on.
  std::optional<GeneratedCode> find(std::string_view key_text);
  void store(std::string_view key_text, const GeneratedCode& code);

 private:
  explicit ObjectCache(std::unique_ptr<CacheFolder> folder) : folder_(std::move(folder)) {}

  const std::unique_ptr<CacheFolder> folder_;
};

}  // namespace gpurun::emulated
