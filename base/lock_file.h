// A lock among processes: a file of its own that no other user can open. A folder, or a file that
// others may read, can be locked by them as well, for as long as they like.
#pragma once

#include <string>

#include "base/deadline.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace gpurun {

// Locks the file `name` of mode 0600 in `folder`, which it makes where it is missing, until the
// descriptor goes. The caller has seen that only its own user, root and the folder's owner can
// write in `folder`. What root makes in another user's folder becomes that user's. `path` is the
// file's, for messages. kRefused: the file is a link, or other users can open it. kDeadline:
// another process holds the lock.
Result<UniqueFd> lock_file(int folder, const std::string& name, const std::string& path,
                           Deadline deadline);

}  // namespace gpurun
