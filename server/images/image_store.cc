// ImageStore: looks into memory first, and then into the cache on disk.
#include "server/images/image_store.h"

#include <optional>
#include <utility>

namespace gpurun::server {

ImageStore::Stored ImageStore::find(const Sha256Digest& digest, bool* kept) {
  *kept = true;
  {
    const std::lock_guard lock(mutex_);
    const auto it = images_.find(digest);
    if (it != images_.end()) return it->second;
  }
  *kept = false;
  if (cache_ == nullptr) return nullptr;
  std::optional<Bytes> cached = cache_->find(digest);
  if (!cached.has_value()) return nullptr;
  return keep(digest, std::make_shared<const Bytes>(*std::move(cached)), kept);
}

ImageStore::Stored ImageStore::add(const Sha256Digest& digest, ByteView bundle, bool* kept) {
  {
    const std::lock_guard lock(mutex_);
    const auto it = images_.find(digest);
    *kept = it != images_.end();
    if (*kept) return it->second;
  }
  return keep(digest, std::make_shared<const Bytes>(bundle.begin(), bundle.end()), kept);
}

ImageStore::Stored ImageStore::keep(const Sha256Digest& digest, Stored stored, bool* kept) {
  const std::lock_guard lock(mutex_);
  *kept = true;
  if (const auto it = images_.find(digest); it != images_.end()) return it->second;
  *kept = stored->size() <= kept_bytes_max_ - kept_bytes_;
  if (*kept) {
    kept_bytes_ += stored->size();
    images_.emplace(digest, stored);
  }
  return stored;
}

void ImageStore::keep_beyond(const Sha256Digest& digest, const Stored& stored) {
  if (cache_ != nullptr) cache_->add(digest, *stored);
}

void ImageStore::settle() {
  if (cache_ != nullptr) cache_->settle();
}

}  // namespace gpurun::server
