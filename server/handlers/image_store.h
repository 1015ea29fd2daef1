// ImageStore: the code images that a worker has been sent, by the SHA-256 of their bundle, so that
// none is sent twice. In memory, for the life of the session.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>

#include "base/bytes.h"
#include "base/sha256.h"

namespace gpurun::server {

// Any thread.
class ImageStore {
 public:
  // Bytes kept at most; images beyond are used and forgotten, and the client is told so.
  static constexpr std::size_t kKeptBytesMax = std::size_t{512} << 20;

  explicit ImageStore(std::size_t kept_bytes_max = kKeptBytesMax)
      : kept_bytes_max_(kept_bytes_max) {}
  ImageStore(const ImageStore&) = delete;
  ImageStore& operator=(const ImageStore&) = delete;

  using Stored = std::shared_ptr<const Bytes>;
  // nullptr: it was never sent, or not kept.
  Stored find(const Sha256Digest& digest) const;
  // A private copy of `bundle`, whose digest the caller has verified. `*kept`: find() will find it.
  Stored add(const Sha256Digest& digest, ByteView bundle, bool* kept);

 private:
  const std::size_t kept_bytes_max_;
  mutable std::mutex mutex_;
  std::map<Sha256Digest, Stored> images_;  // Guarded by mutex_.
  std::size_t kept_bytes_ = 0;             // Guarded by mutex_.
};

}  // namespace gpurun::server
