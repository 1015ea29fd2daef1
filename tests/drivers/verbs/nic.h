// The NIC's thread of the verbs double: it moves the data of all QPs.
#pragma once

#include "tests/drivers/verbs/objects.h"

namespace gpurun::verbs_double {

// Starts and stops the thread. start_nic returns false with errno. The caller holds the mutex.
bool start_nic();
void stop_nic(Lock& lock);
// Makes the thread look at all QPs. Any thread, with or without the mutex.
void wake_nic();
// Executes the faults that are due after this post. `qp` is the posting QP, or nullptr.
void run_triggered(const std::vector<Fault>& faults, Qp* qp);

}  // namespace gpurun::verbs_double
