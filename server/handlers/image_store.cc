#include "server/handlers/image_store.h"

namespace gpurun::server {

ImageStore::Stored ImageStore::find(const Sha256Digest& digest) const {
  const std::lock_guard lock(mutex_);
  const auto it = images_.find(digest);
  return it == images_.end() ? nullptr : it->second;
}

ImageStore::Stored ImageStore::add(const Sha256Digest& digest, ByteView bundle, bool* kept) {
  *kept = true;
  if (Stored known = find(digest)) return known;
  auto stored = std::make_shared<const Bytes>(bundle.begin(), bundle.end());
  const std::lock_guard lock(mutex_);
  *kept = bundle.size() <= kept_bytes_max_ - kept_bytes_;
  if (*kept && images_.emplace(digest, stored).second) kept_bytes_ += bundle.size();
  return stored;
}

}  // namespace gpurun::server
