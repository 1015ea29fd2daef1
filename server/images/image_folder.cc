// ImageFolder: an image's file holds its bytes and nothing else, so its name verifies it.
#include "server/images/image_folder.h"

#include <errno.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "base/file_io.h"
#include "protocol/limits.h"

namespace gpurun::server {
namespace {

constexpr std::size_t kCopyBytes = std::size_t{1} << 20;
constexpr const char* kOtherBytes = "does not match its name";

// Passes `bytes` of `source` to `take`, piece by piece. Returns whether all worked and the digest
// fits.
template <typename Take>
bool walk(int source, std::uint64_t bytes, const Sha256Digest& digest, Take take) {
  Sha256 hash;
  Bytes piece(static_cast<std::size_t>(std::min<std::uint64_t>(bytes, kCopyBytes)));
  for (std::uint64_t at = 0; at < bytes;) {
    const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(bytes - at, kCopyBytes));
    const MutableBytes run = MutableBytes(piece).first(count);
    if (!read_part(source, run, at, "an image").ok() || !take(ByteView(run))) return false;
    hash.update(run);
    at += count;
  }
  return hash.finish() == digest;
}

// Returns whether `status` is a success, and logs a failure.
bool is_kept(const Status& status) {
  if (status.code() == Code::kTooLarge) {
    spdlog::info("{}", status.message());
  } else if (!status.ok()) {
    spdlog::warn("an image is not kept: {}", status.message());
  }
  return status.ok();
}

}  // namespace

Result<std::unique_ptr<ImageFolder>> ImageFolder::open(const std::string& path,
                                                       std::uint64_t bytes_max) {
  if (path.empty() || path.front() != '/') {
    return Status(Code::kInvalidArgument, "'" + path + "' is not an absolute path");
  }
  CacheRules rules;
  rules.bytes_max = bytes_max;
  rules.files_max = kFilesMax;
  rules.entry_bytes_max = limits::kImageBytesMax;
  auto folder = CacheFolder::open(path, rules);
  if (!folder.ok()) return folder.status();
  return std::unique_ptr<ImageFolder>(new ImageFolder(*std::move(folder)));
}

UniqueFd ImageFolder::open_image(const Sha256Digest& digest) {
  Result<UniqueFd> image = folder_->open_entry(digest);
  if (image.ok()) return *std::move(image);
  if (image.status().code() != Code::kUnavailable) spdlog::warn("{}", image.status().message());
  return UniqueFd();
}

std::optional<Bytes> read_image(int image, const Sha256Digest& digest) {
  struct stat about;
  if (fstat(image, &about) != 0 || !S_ISREG(about.st_mode)) return std::nullopt;
  if (static_cast<std::uint64_t>(about.st_size) > limits::kImageBytesMax) return std::nullopt;
  Bytes bytes(static_cast<std::size_t>(about.st_size));
  if (!read_part(image, bytes, 0, "an image").ok() || sha256(bytes) != digest) return std::nullopt;
  return bytes;
}

std::optional<Bytes> ImageFolder::find(const Sha256Digest& digest) {
  const UniqueFd image = open_image(digest);
  if (!image.valid()) return std::nullopt;
  std::optional<Bytes> bytes = read_image(image.get(), digest);
  if (!bytes.has_value()) {
    spdlog::warn("{}", folder_->remove_damaged(digest, kOtherBytes).message());
  }
  return bytes;
}

void ImageFolder::remove_if_damaged(const Sha256Digest& digest) {
  const UniqueFd image = open_image(digest);
  struct stat about;
  if (!image.valid() || fstat(image.get(), &about) != 0) return;
  const auto bytes = static_cast<std::uint64_t>(about.st_size);
  if (!walk(image.get(), bytes, digest, [](ByteView) { return true; })) {
    spdlog::warn("{}", folder_->remove_damaged(digest, kOtherBytes).message());
  }
}

void ImageFolder::add(const Sha256Digest& digest, ByteView bundle) {
  if (folder_->has(digest)) return;
  Result<CacheFolder::Part> part = folder_->start(bundle.size());
  if (is_kept(part.status()) && is_kept(part->write(bundle))) is_kept(part->finish(digest));
}

void ImageFolder::add_from(const Sha256Digest& digest, int source, std::uint64_t bytes) {
  if (folder_->has(digest)) return;
  Result<CacheFolder::Part> part = folder_->start(bytes);
  if (!is_kept(part.status())) return;
  const auto write = [&part](ByteView run) { return is_kept(part->write(run)); };
  if (walk(source, bytes, digest, write)) is_kept(part->finish(digest));
}

}  // namespace gpurun::server
