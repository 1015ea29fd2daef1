// Actions: the numbers of what hostile_device.cc does on request, as a stranger's native code might
// do it.
#pragma once

namespace gpurun::hostile {

inline constexpr const char* kActions[] = {
    "read_secret",      "read_any_file",        "list_root",     "write_shared_memory",
    "read_environ",     "open_memory",          "reach_network", "trace_other",
    "signal_other",     "kill_other",           "signal_thread", "read_memory_of_other",
    "limit_other",      "signal_by_descriptor", "start_child",   "start_program",
    "become_root",      "make_namespace",       "make_ring",     "catch_the_signal",
    "other_machine",    "take_memory",          "allocate",      "start_threads",
    "take_descriptors", "use_inherited",        "flood_the_log", "hold_up_a_close",
    "kill_by_x32",      "open_rdma_device",     "slow_other"};

// cuCtxGetLimit(kFirstAction + number) does it. cuCtxSetLimit(kArgument, n) sets its target or
// amount. CUDA's own limits have lower numbers.
inline constexpr int kArgument = 64;
inline constexpr int kFirstAction = 65;

}  // namespace gpurun::hostile
