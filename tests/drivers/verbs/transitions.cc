// The table of a reliable QP's transitions.
#include "tests/drivers/verbs/transitions.h"

namespace gpurun::verbs_double {
namespace {

struct Transition {
  ibv_qp_state from;
  ibv_qp_state to;
  int needs;
  int allows;
};

constexpr int kInit = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
constexpr int kAlternate = IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE;

constexpr Transition kTransitions[] = {
    {IBV_QPS_RESET, IBV_QPS_INIT, kInit, 0},
    {IBV_QPS_INIT, IBV_QPS_INIT, 0, kInit},
    {IBV_QPS_INIT, IBV_QPS_RTR,
     IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
         IBV_QP_MIN_RNR_TIMER,
     IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX},
    {IBV_QPS_RTR, IBV_QPS_RTS,
     IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
     IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER | kAlternate},
    {IBV_QPS_RTS, IBV_QPS_RTS, 0,
     IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER | kAlternate}};

}  // namespace

bool may_modify(ibv_qp_state from, ibv_qp_state to, int mask) {
  const int others = mask & ~static_cast<int>(IBV_QP_STATE);
  if (to == IBV_QPS_RESET || to == IBV_QPS_ERR) return others == 0;
  for (const Transition& transition : kTransitions) {
    if (transition.from != from || transition.to != to) continue;
    return (others & transition.needs) == transition.needs &&
           (others & ~(transition.needs | transition.allows)) == 0;
  }
  return false;
}

}  // namespace gpurun::verbs_double
