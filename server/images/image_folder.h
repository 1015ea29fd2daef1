// ImageFolder: images in files of one folder, each named by its digest in hexadecimal.
//
// The folder has mode 0700 and its files 0600. All belong to the process's own user. Any other
// file, a link included, is not an image. Several processes may use the same folder. A file is
// written under another name and then renamed. Each reader hashes the file and removes it if its
// bytes do not fit its name. So no crash or disk error ever yields a wrong image.
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
  // The most files, whatever their sizes, because each addition looks at all of them.
  static constexpr std::size_t kFilesMax = 8192;
  // The least that a file counts for: one disk block.
  static constexpr std::uint64_t kBlockBytes = 4096;
  // A half-written file of that age remains from a process that died.
  static constexpr std::chrono::minutes kAbandonedAfter{60};

  // Creates the folder and its parents where they are missing. `bytes_max` bounds all files
  // together. The least recently used files are removed first. kRefused: the folder is a link,
  // another user's, or open to others. Otherwise returns the system's error.
  static Result<std::unique_ptr<ImageFolder>> open(const std::string& path,
                                                   std::uint64_t bytes_max);

  std::optional<Bytes> find(const Sha256Digest& digest) override;
  void add(const Sha256Digest& digest, ByteView bundle) override;

  // These are for callers that read the bytes elsewhere or have them.
  //
  // Opens the file of that image for reading and marks it as just used. Its bytes are not verified.
  UniqueFd open_image(const Sha256Digest& digest);
  // Removes the file if its bytes do not fit its name.
  void remove_if_damaged(const Sha256Digest& digest);
  // The folder's descriptor.
  int fd() const { return folder_.get(); }
  // Copies `bytes` from the start of `source`, and keeps the copy if its digest is `digest`.
  void add_from(const Sha256Digest& digest, int source, std::uint64_t bytes);

 private:
  class Part;

  ImageFolder(UniqueFd folder, std::string path, std::uint64_t bytes_max)
      : folder_(std::move(folder)), path_(std::move(path)), bytes_max_(bytes_max) {}

  // Whether the file seems to be there. If so, it is marked as just used.
  bool has(const Sha256Digest& digest) const;
  std::optional<Part> start(std::uint64_t bytes);
  bool make_room(std::uint64_t bytes);
  void remove(const std::string& name, const char* why) const;

  const UniqueFd folder_;  // Processes also lock it while they make room.
  const std::string path_;
  const std::uint64_t bytes_max_;
  std::mutex mutex_;  // The file lock is per process. This one is among its threads.
};

// The bytes of `image` if they have the digest `digest`.
std::optional<Bytes> read_image(int image, const Sha256Digest& digest);

}  // namespace gpurun::server
