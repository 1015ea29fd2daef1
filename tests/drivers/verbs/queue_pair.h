// The life of a QP of the verbs double. The caller holds the NIC's mutex.
#pragma once

#include "tests/drivers/verbs/objects.h"

namespace gpurun::verbs_double {

// Moves the QP to ERR: its connections end and its work completes with WR_FLUSH_ERR, in order. A
// refusal that has been put on the responder's connection still leaves.
void move_to_error(Qp& qp);
// Completes the oldest send request. `signaled` false: it is only forgotten if it succeeded.
void finish_send(Qp& qp, ibv_wc_status status);
// Completes the oldest posted receive. The caller fills the rest of the completion.
void finish_receive(Qp& qp, ibv_wc wc, bool solicited);
// Ends the QP's connections and forgets where they were.
void disconnect(Qp& qp);
// The QP loses its peer, and finds no other.
void cut(Qp& qp);

int post_send(ibv_qp* qp, ibv_send_wr* first, ibv_send_wr** bad);
int post_receive(ibv_qp* qp, ibv_recv_wr* first, ibv_recv_wr** bad);

}  // namespace gpurun::verbs_double
