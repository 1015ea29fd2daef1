// The responder of a QP: it accepts the peer's connection and executes the peer's requests. The
// caller holds the NIC's mutex.
#pragma once

#include "tests/drivers/verbs/objects.h"

namespace gpurun::verbs_double {

// Accepts a connection, executes requests and sends what is due.
void run_responder(Qp& qp);
// Places the data of all received writes, also late ones.
void place_all(Qp& qp);

}  // namespace gpurun::verbs_double
