// lock_file(): a lock among processes, on a file of its own that no other user can open. Other
// users can also lock a folder, or a file that they may read, for as long as they like.
#pragma once

#include <string>

#include "base/deadline.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace gpurun {

// Locks the file `name` in `folder` until the returned descriptor is closed. Creates the file, with
// mode 0600, if it is missing. The caller has checked that only its own user, root and the folder's
// owner can write in `folder`. A file that root creates in another user's folder becomes that
// user's. `path` names the file in messages. kRefused: the file is a link, or other users can open
// it. kDeadline: another process holds the lock.
Result<UniqueFd> lock_file(int folder, const std::string& name, const std::string& path,
                           Deadline deadline);

}  // namespace gpurun
