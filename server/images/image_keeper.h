// ImageKeeper: the image folder for a worker that is about to become a user who cannot open it.
//
// A descriptor of the folder would not help such a worker: each openat() asks for the right to
// search the folder anew. So before it opens the driver it forks a keeper, and before a stranger is
// heard it tells it whose images are wanted. The keeper opens that folder, keeps the folder's user
// and no other right, and does three things: give an image's file, open for reading; remove one
// that is not what its name says; and keep the bytes of a memory file under the digest that it has
// found them to have. A worker that strangers' code has taken over gets no more than that.
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
  // Of the folder's parts.
  static constexpr std::size_t kNameBytesMax = 255;

  // Which part of the folder is meant, by its path from there. Before all else, and once; waits for
  // nothing. Where it cannot be opened the keeper says so on stderr, and keeps no image.
  virtual void keep(const std::string& part) = 0;
};

// Forks the keeper for a part of `path`, with `bytes_max` of images; it ends behind this process,
// that must have one thread, once it has done what it was asked for, and 10 s later at most. Of its
// descriptors the keeper has the folder, stdin, stdout and stderr. kResourceExhausted.
Result<std::unique_ptr<ImageKeeper>> start_image_keeper(const std::string& path,
                                                        std::uint64_t bytes_max);

}  // namespace gpurun::server
