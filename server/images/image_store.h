// ImageStore: the code images that a worker has been sent, by the SHA-256 of their bundle, so that
// none is sent twice: in memory for the life of the session, and in a cache, if there is one,
// beyond it.
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
  // Bytes kept in memory at most; images beyond are used and forgotten, and the client is told so.
  static constexpr std::size_t kKeptBytesMax = std::size_t{512} << 20;

  explicit ImageStore(std::size_t kept_bytes_max = kKeptBytesMax)
      : kept_bytes_max_(kept_bytes_max) {}
  ImageStore(const ImageStore&) = delete;
  ImageStore& operator=(const ImageStore&) = delete;

  using Stored = std::shared_ptr<const Bytes>;
  // Before the first use; nullptr: images end with the session.
  void set_cache(std::unique_ptr<ImageCache> cache) { cache_ = std::move(cache); }

  // nullptr: it was never sent, or not kept. `*kept`: it is in memory, so that find() will find it
  // as long as this lives.
  Stored find(const Sha256Digest& digest, bool* kept);
  // A private copy of `bundle`, whose digest the caller has verified.
  Stored add(const Sha256Digest& digest, ByteView bundle, bool* kept);
  // Puts what add() gave into the cache: the caller has seen that it is an image. May take the time
  // that the disk takes, or leave some of it to settle().
  void keep_beyond(const Sha256Digest& digest, const Stored& stored);
  // Before the process ends: as ImageCache::settle().
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
