// Names of the verbs' enumerations, with the wording of rdma-core, and the fork functions.
#include <infiniband/verbs.h>

#include <cstddef>

namespace {

template <std::size_t n>
const char* text_of(const char* const (&texts)[n], int value) {
  return value >= 0 && static_cast<std::size_t>(value) < n ? texts[value] : "unknown";
}

constexpr const char* kStatuses[] = {"success",
                                     "local length error",
                                     "local QP operation error",
                                     "local EE context operation error",
                                     "local protection error",
                                     "Work Request Flushed Error",
                                     "memory management operation error",
                                     "bad response error",
                                     "local access error",
                                     "remote invalid request error",
                                     "remote access error",
                                     "remote operation error",
                                     "transport retry counter exceeded",
                                     "RNR retry counter exceeded",
                                     "local RDD violation error",
                                     "remote invalid RD request",
                                     "aborted error",
                                     "invalid EE context number",
                                     "invalid EE context state",
                                     "fatal error",
                                     "response timeout error",
                                     "general error"};

constexpr const char* kEvents[] = {"CQ error",
                                   "local work queue catastrophic error",
                                   "invalid request local work queue error",
                                   "local access violation work queue error",
                                   "communication established",
                                   "send queue drained",
                                   "path migrated",
                                   "path migration request error",
                                   "local catastrophic error",
                                   "port active",
                                   "port error",
                                   "LID change",
                                   "P_Key change",
                                   "SM change",
                                   "SRQ catastrophic error",
                                   "SRQ limit reached",
                                   "last WQE reached",
                                   "client reregistration",
                                   "GID table change",
                                   "WQ fatal"};

constexpr const char* kPortStates[] = {"invalid state", "PORT_DOWN",   "PORT_INIT",
                                       "PORT_ARMED",    "PORT_ACTIVE", "PORT_ACTIVE_DEFER"};

constexpr const char* kNodeTypes[] = {"unknown",           "InfiniBand channel adapter",
                                      "InfiniBand switch", "InfiniBand router",
                                      "iWARP NIC",         "usNIC",
                                      "usNIC UDP",         "unspecified"};

}  // namespace

const char* ibv_wc_status_str(ibv_wc_status status) { return text_of(kStatuses, status); }
const char* ibv_event_type_str(ibv_event_type event) { return text_of(kEvents, event); }
const char* ibv_port_state_str(ibv_port_state state) { return text_of(kPortStates, state); }
const char* ibv_node_type_str(ibv_node_type type) { return text_of(kNodeTypes, type); }

// Registered memory of the double is ordinary memory, so that fork() harms nothing.
int ibv_fork_init() { return 0; }
ibv_fork_status ibv_is_fork_initialized() { return IBV_FORK_UNNEEDED; }
