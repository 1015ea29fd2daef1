// ImageCache: code images that outlive a session, by the SHA-256 of their bundle.
#pragma once

#include <optional>

#include "base/bytes.h"
#include "base/sha256.h"

namespace gpurun::server {

// Any thread. What it cannot do is logged and costs the client that it sends the image again.
class ImageCache {
 public:
  ImageCache() = default;
  ImageCache(const ImageCache&) = delete;
  ImageCache& operator=(const ImageCache&) = delete;
  virtual ~ImageCache() = default;

  // The bytes, whose digest has been verified after they were read.
  virtual std::optional<Bytes> find(const Sha256Digest& digest) = 0;
  // Keeps `bundle`, whose digest the caller has verified: at once or soon, but before what is asked
  // for next.
  virtual void add(const Sha256Digest& digest, ByteView bundle) = 0;
  // Before the process ends: returns when what was added is kept, or cannot be. Bounded: a disk
  // that stands is not waited for.
  virtual void settle() {}
};

}  // namespace gpurun::server
