// ImageFolder: images in files of one folder, each named by its digest in hexadecimal.
//
// CacheFolder has the rules of the folder. Each reader hashes the file and removes it if its bytes
// do not fit its name. So no crash or disk error ever yields a wrong image.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/cache_folder.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "server/images/image_cache.h"

namespace gpurun::server {

class ImageFolder final : public ImageCache {
 public:
  // The most files, whatever their sizes, because each addition looks at all of them.
  static constexpr std::size_t kFilesMax = 8192;
  // The least that a file counts for: one disk block.
  static constexpr std::uint64_t kBlockBytes = CacheFolder::kBlockBytes;
  // A half-written file of that age remains from a process that died.
  static constexpr std::chrono::minutes kAbandonedAfter = CacheFolder::kAbandonedAfter;

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
  // Copies `bytes` from the start of `source`, and keeps the copy if its digest is `digest`.
  void add_from(const Sha256Digest& digest, int source, std::uint64_t bytes);

 private:
  explicit ImageFolder(std::unique_ptr<CacheFolder> folder) : folder_(std::move(folder)) {}

  const std::unique_ptr<CacheFolder> folder_;
};

// The bytes of `image` if they have the digest `digest`.
std::optional<Bytes> read_image(int image, const Sha256Digest& digest);

}  // namespace gpurun::server
