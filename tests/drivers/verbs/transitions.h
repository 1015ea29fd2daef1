// Transitions of a reliable QP: which changes of state exist, and which attributes they need.
#pragma once

#include <infiniband/verbs.h>

namespace gpurun::verbs_double {

// Whether the kernel permits this change with these attributes (Linux, ib_modify_qp_is_ok and its
// table qp_state_table, for RC). SQD and SQE are not implemented.
bool may_modify(ibv_qp_state from, ibv_qp_state to, int mask);

}  // namespace gpurun::verbs_double
