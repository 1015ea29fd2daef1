// The requester of a QP: it connects, sends requests and completes them. The caller holds the NIC's
// mutex.
#pragma once

#include "tests/drivers/verbs/objects.h"

namespace gpurun::verbs_double {

// Connects, sends what may leave, takes what the peer answers, and times out.
void run_requester(Qp& qp, Clock::time_point now);
// When run_requester has to run again without input. time_point::max(): never.
Clock::time_point requester_deadline(const Qp& qp);

}  // namespace gpurun::verbs_double
