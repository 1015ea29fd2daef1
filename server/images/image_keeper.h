// ImageKeeper: the image folder for a worker that is about to become a user who cannot open it.
//
// A descriptor of the folder would not help such a worker: each openat() asks for the right to
// search the folder anew. So before it opens the driver it forks a keeper, which keeps the folder's
// user and no other right, and does three things: give an image's file, open for reading; remove
// one that is not what its name says; and keep the bytes of a memory file under the digest that it
// has found them to have. A worker that strangers' code has taken over gets no more than that.
#pragma once

#include <memory>

#include "base/result.h"
#include "server/images/image_folder.h"

namespace gpurun::server {

// Forks the keeper of `folder`, which ends with this process; that must have one thread. Of its
// descriptors the keeper has the folder, stdin, stdout and stderr. kResourceExhausted.
Result<std::unique_ptr<ImageCache>> start_image_keeper(std::unique_ptr<ImageFolder> folder);

}  // namespace gpurun::server
