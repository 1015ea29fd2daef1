// Completions and events of the verbs double. The caller holds the NIC's mutex.
#pragma once

#include "tests/drivers/verbs/objects.h"

namespace gpurun::verbs_double {

// Adds a completion, and an event if the CQ is armed for it. An overrun CQ takes nothing.
void add_completion(Cq& cq, const Entry& entry, bool solicited);
// Removes the entries of a QP, as RESET and destruction do.
void drop_completions(Cq& cq, std::uint32_t qp_number);
// Asynchronous events, which ibv_get_async_event returns.
void post_event(Context& context, ibv_event_type type, std::uint64_t element);

int poll_cq(ibv_cq* cq, int most, ibv_wc* out);
int request_notify(ibv_cq* cq, int solicited_only);

}  // namespace gpurun::verbs_double
