// ImageKeeper: the image folder for a worker that is about to become a user without access to it.
//
// A descriptor of the folder would not help such a worker, because each openat() checks the right
// to search the folder again. So the worker forks a keeper before it opens the driver. It names its
// part of the folder before it reads any byte of the client. The keeper opens that part, keeps the
// folder's user and no other right, and does three things. It returns an image's file, open for
// reading. It removes a file with bytes that do not fit its name. It keeps the bytes of a memory
// file under their digest, which it has verified. A worker that hostile code has taken over can do
// no more than that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "server/images/image_cache.h"

namespace gpurun::server {

class ImageKeeper : public ImageCache {
 public:
  // The longest name of a part.
  static constexpr std::size_t kNameBytesMax = 255;

  // Selects the part of the folder, by its path from there. Called once and before all else. It
  // does not block. If the part cannot be opened, the keeper logs that on stderr and keeps no
  // image.
  virtual void keep(const std::string& part) = 0;
};

// Forks the keeper for a part of `path`, with `bytes_max` bytes of images. This process must have
// one thread. The keeper ends after this process, once it has finished its requests, at most 10 s
// later. Its only descriptors are the folder, its socket, stdin, stdout and stderr.
// kResourceExhausted.
Result<std::unique_ptr<ImageKeeper>> start_image_keeper(const std::string& path,
                                                        std::uint64_t bytes_max);

}  // namespace gpurun::server
