// Orphans: processes that a worker has started and that outlive it, where nothing keeps a worker
// from starting any (confinement = "none").
//
// They become children of this process. A process is ended as our child, never by its user alone:
// another daemon with a claims file of its own may lend the same number.
// One thread, which also starts the workers.
#pragma once

#include <sys/types.h>

#include "base/deadline.h"
#include "base/status.h"

namespace gpurun::server {

// From now on a process whose parent ends becomes a child of this one (PR_SET_CHILD_SUBREAPER).
Status adopt_orphans();

// Ends all orphans that run as `user`, and what they start meanwhile; collects what else has ended.
// False: some still run at the deadline.
bool end_orphans(uid_t user, Deadline deadline);

}  // namespace gpurun::server
