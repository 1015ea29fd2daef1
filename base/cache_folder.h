// CacheFolder: files in one folder of this user, each named by a digest in hexadecimal.
//
// Any file of a cache may disappear at any time. So every failure counts as a missing entry, and
// the caller decides what to log. Any number of threads and processes may use one folder.
//
// - The folder and its files belong to this process's user. A file has mode 0600 and one hard link.
//   Anything else under an entry's name, a symbolic link included, is not an entry and is removed.
// - A file appears whole: it is written as "part-" and 16 digits, and renamed.
// - A reader verifies what it reads: find() by a head with the format, the key and a digest of the
//   rest, other readers by the entry's name. Entries of another format are removed as damaged.
// - Names of other forms are never touched, because a user may name any folder.
#pragma once

#include <sys/stat.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/result.h"
#include "base/sha256.h"
#include "base/unique_fd.h"

namespace gpurun {

struct CacheRules {
  // Bounds of all files together, half-written ones included. A file counts as whole disk blocks.
  std::uint64_t bytes_max = 0;
  std::size_t files_max = 0;
  // The bound of one file. Larger ones are not kept.
  std::uint64_t entry_bytes_max = 0;
  // How often an addition looks at all files, to remove the least recently used ones.
  // 1: each one, before it writes, so that the bounds always hold.
  // More: at random on average one in so many, because processes are independent and short. Also
  // each one after which this object has added a sixteenth of `bytes_max`. Such a look makes a
  // quarter of the bounds free, so that not every process has to clean up.
  unsigned additions_per_look = 1;
  // Whether other users may read the folder. They may never write it.
  bool others_may_read = false;
  // Behind the digits of an entry's name.
  std::string_view suffix = "";
};

class CacheFolder {
 public:
  // The least that a file counts for: one disk block.
  static constexpr std::uint64_t kBlockBytes = 4096;
  // A half-written file of that age remains from a process that died.
  static constexpr std::chrono::minutes kAbandonedAfter{60};
  // In each file of find() and add(): a cache's name and version, padded with zeros.
  static constexpr std::size_t kFormatBytes = 16;

  // Opens the folder `path`. Makes it and its parents if they are missing. Makes no folder if more
  // than `missing_max` are missing. kUnavailable: the folder is missing or cannot be made.
  // kRefused: `path` is a link or not a folder, belongs to another user, or is open to others.
  static Result<std::unique_ptr<CacheFolder>> open(const std::string& path, const CacheRules& rules,
                                                   std::size_t missing_max = SIZE_MAX);

  const std::string& path() const noexcept { return path_; }
  std::string name_of(const Sha256Digest& digest) const;

  // Returns the payload that add() has kept for `key`, and marks the entry as just used.
  // kUnavailable: it is absent. kProtocol: it was damaged, of another format, or no entry of this
  // user. It is removed, and the message says why.
  Result<Bytes> find(std::string_view format, const Sha256Digest& key) const;
  // Keeps `payload`, the pieces one after the other. kTooLarge: over a bound.
  Status add(std::string_view format, const Sha256Digest& key,
             std::initializer_list<ByteView> payload);

  // For files with the digest of their bytes as their name, which callers read and verify.
  //
  // Opens the entry for reading and marks it as just used. Its bytes are not verified. Failures as
  // for find().
  Result<UniqueFd> open_entry(const Sha256Digest& digest) const;
  // Whether the entry seems to be there. If so, it is marked as just used.
  bool has(const Sha256Digest& digest) const;
  // Removes the entry. `why` goes into the message of the returned failure (kProtocol).
  Status remove_damaged(const Sha256Digest& digest, const char* why) const;

  // A file that is being written. It is removed again unless it is finished. Not longer than its
  // folder.
  class Part;
  // Makes room, and reserves `bytes` on the disk. kTooLarge: over a bound, or no room can be made.
  // Otherwise the system's failure, as for a full disk.
  Result<Part> start(std::uint64_t bytes);

 private:
  CacheFolder(UniqueFd folder, const std::string& path, const CacheRules& rules)
      : folder_(std::move(folder)), path_(path), rules_(rules) {}

  bool strict() const { return rules_.additions_per_look == 1; }
  bool is_entry_name(std::string_view name) const;
  bool may_be_entry(const struct stat& about) const;
  bool is_time_to_look(std::uint64_t bytes, const std::string& digits);
  bool make_room(std::uint64_t bytes) const;

  const UniqueFd folder_;  // Processes also lock it while they make room.
  const std::string path_;
  const CacheRules rules_;
  std::mutex mutex_;  // The file lock is per process. This one is among its threads.
  std::uint64_t added_since_look_ = 0;  // Guarded by mutex_.
};

class CacheFolder::Part {
 public:
  Part(Part&& other) noexcept
      : owner_(other.owner_), file_(std::move(other.file_)), name_(std::move(other.name_)) {
    other.name_.clear();
  }
  Part& operator=(Part&&) = delete;
  ~Part();

  Status write(ByteView bytes);
  // Gives the file the name of `digest`. Once.
  Status finish(const Sha256Digest& digest);

 private:
  friend class CacheFolder;
  Part(CacheFolder& owner, UniqueFd file, std::string name)
      : owner_(&owner), file_(std::move(file)), name_(std::move(name)) {}
  Status reserve(std::uint64_t bytes);

  CacheFolder* owner_;
  UniqueFd file_;
  std::string name_;  // Empty: finished, or moved on.
};

}  // namespace gpurun
