// ImageFolder: images in files of one folder, each named by its digest in hexadecimal.
//
// The folder has mode 0700, its files 0600, and all are the process's own user's: what is not, a
// link included, is no image. Several processes may use the same folder. A file is written under
// another name, then renamed; whoever reads one hashes it, and removes one that is not what its
// name says, so that no crash and no flaw of a disk is ever taken for an image.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"
#include "server/images/image_cache.h"

namespace gpurun::server {

class ImageFolder final : public ImageCache {
 public:
  // Files at most, whatever their sizes: each addition looks at all.
  static constexpr std::size_t kFilesMax = 8192;
  // The least that a file counts for: a block of a disk.
  static constexpr std::uint64_t kBlockBytes = 4096;
  // A half-written file of that age was left by a process that died.
  static constexpr std::chrono::minutes kAbandonedAfter{60};

  // Makes the folder, and those above it, where they are missing. `bytes_max`: of all files; the
  // ones that were used longest ago go first. kRefused: it is a link, another user's, or open to
  // others; else what the system said.
  static Result<std::unique_ptr<ImageFolder>> open(const std::string& path,
                                                   std::uint64_t bytes_max);

  std::optional<Bytes> find(const Sha256Digest& digest) override;
  void add(const Sha256Digest& digest, ByteView bundle) override;

  // For who reads, or has, the bytes elsewhere.
  //
  // The file of that image, open for reading, marked as just used; its bytes may be anything.
  UniqueFd open_image(const Sha256Digest& digest);
  // Removes the file if it is not what its name says.
  void remove_if_damaged(const Sha256Digest& digest);
  // The folder's descriptor.
  int fd() const { return folder_.get(); }
  // Copies `bytes` from the start of `source`, and keeps the copy if its digest is `digest`.
  void add_from(const Sha256Digest& digest, int source, std::uint64_t bytes);

 private:
  class Part;

  ImageFolder(UniqueFd folder, std::string path, std::uint64_t bytes_max)
      : folder_(std::move(folder)), path_(std::move(path)), bytes_max_(bytes_max) {}

  // Whether it seems to be there; it is marked as just used then.
  bool has(const Sha256Digest& digest) const;
  std::optional<Part> start(std::uint64_t bytes);
  bool make_room(std::uint64_t bytes);
  void remove(const std::string& name, const char* why) const;

  const UniqueFd folder_;  // Also what processes lock while they make room.
  const std::string path_;
  const std::uint64_t bytes_max_;
  std::mutex mutex_;  // The lock is the process's: among its threads this one.
};

// The bytes of `image` if they are those that `digest` names.
std::optional<Bytes> read_image(int image, const Sha256Digest& digest);

}  // namespace gpurun::server
