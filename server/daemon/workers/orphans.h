// Orphans: processes that a worker has started and that outlive it. Only a worker without
// confinement (confinement = "none") can start any.
//
// They become children of this process. Where this process is the first of a container, orphans of
// other processes do, too: a worker's keeper of images. A process is ended only because it is our
// child, never because of its user alone: another daemon with a separate claims file may lend the
// same number. One thread, which also starts the workers.
#pragma once

#include <sys/types.h>

#include "base/deadline.h"
#include "base/status.h"

namespace gpurun::server {

// From now on a process becomes a child of this one when its parent ends (PR_SET_CHILD_SUBREAPER).
Status adopt_orphans();

// Kills all orphans that run as `user`, and the processes that they start meanwhile. Also reaps
// other orphans that have ended. Returns false if some of `user` still run at the deadline.
bool end_orphans(uid_t user, Deadline deadline);

// Where this process is the first of its PID namespace: reaps orphans that have ended, which
// nothing else does (pid_namespaces(7)).
void reap_orphans();

}  // namespace gpurun::server
