// ImageStore: the code images that a client has sent to a worker, by the SHA-256 of their bundle,
// so that no image is sent twice. They stay in memory for the life of the session, and in a cache,
// if there is one, for longer.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>

#include "base/bytes.h"
#include "base/sha256.h"
#include "server/images/image_cache.h"

namespace gpurun::server {

// Any thread.
class ImageStore {
 public:
  // The most bytes in memory. Further images are used and forgotten, and the client is notified of
  // that.
  static constexpr std::size_t kKeptBytesMax = std::size_t{512} << 20;

  explicit ImageStore(std::size_t kept_bytes_max = kKeptBytesMax)
      : kept_bytes_max_(kept_bytes_max) {}
  ImageStore(const ImageStore&) = delete;
  ImageStore& operator=(const ImageStore&) = delete;

  using Stored = std::shared_ptr<const Bytes>;
  // Call it before the first use. nullptr: images end with the session.
  void set_cache(std::unique_ptr<ImageCache> cache) { cache_ = std::move(cache); }

  // nullptr: the image was never sent, or is not kept. `*kept`: it is in memory, so that find()
  // will find it during the life of this object.
  Stored find(const Sha256Digest& digest, bool* kept);
  // Returns a private copy of `bundle`. The caller has verified its digest.
  Stored add(const Sha256Digest& digest, ByteView bundle, bool* kept);
  // Puts the result of add() into the cache. The caller has checked that it is an image. The call
  // may block for the disk, or leave some of the work to settle().
  void keep_beyond(const Sha256Digest& digest, const Stored& stored);
  // Call it before the process ends: see ImageCache::settle().
  void settle();

 private:
  Stored keep(const Sha256Digest& digest, Stored stored, bool* kept);

  const std::size_t kept_bytes_max_;
  std::unique_ptr<ImageCache> cache_;
  mutable std::mutex mutex_;
  std::map<Sha256Digest, Stored> images_;  // Guarded by mutex_.
  std::size_t kept_bytes_ = 0;             // Guarded by mutex_.
};

}  // namespace gpurun::server
