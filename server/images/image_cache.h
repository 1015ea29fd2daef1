// ImageCache: code images that outlive a session, by the SHA-256 of their bundle.
#pragma once

#include <optional>

#include "base/bytes.h"
#include "base/sha256.h"

namespace gpurun::server {

// Any thread. Failures are logged. Their only cost is that the client sends the image again.
class ImageCache {
 public:
  ImageCache() = default;
  ImageCache(const ImageCache&) = delete;
  ImageCache& operator=(const ImageCache&) = delete;
  virtual ~ImageCache() = default;

  // The bytes of the image. Their digest has been verified after they were read.
  virtual std::optional<Bytes> find(const Sha256Digest& digest) = 0;
  // Keeps `bundle`, at once or soon, but before the next request. The caller has verified its
  // digest.
  virtual void add(const Sha256Digest& digest, ByteView bundle) = 0;
  // Call it before the process ends. Returns when the added images are kept or cannot be kept. The
  // wait is bounded, so that a hung disk does not block.
  virtual void settle() {}
};

}  // namespace gpurun::server
