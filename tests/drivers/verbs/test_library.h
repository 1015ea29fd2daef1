// TestLibrary: the verbs double, opened by dlopen as a transport opens libibverbs.
#pragma once

#include <dlfcn.h>
#include <infiniband/verbs.h>

#include <stdexcept>
#include <string>

#include "tests/drivers/verbs/verbs_double.h"

namespace gpurun::verbs_double {

extern const char* const kLibraryPath;

// The inline functions of <infiniband/verbs.h> need none of these. Macros hide some of the names,
// except without parentheses.
class TestLibrary {
 public:
  // Opens the library on first use. It stays open.
  static const TestLibrary& get() {
    static const TestLibrary only;
    return only;
  }

#define VERB(name) decltype(&::ibv_##name) name = find<decltype(&::ibv_##name)>("ibv_" #name)
  VERB(get_device_list);
  VERB(free_device_list);
  VERB(get_device_name);
  VERB(get_device_guid);
  VERB(open_device);
  VERB(close_device);
  VERB(query_device);
  VERB(query_port);
  VERB(query_gid);
  VERB(query_pkey);
  VERB(alloc_pd);
  VERB(dealloc_pd);
  VERB(reg_mr);
  VERB(reg_mr_iova2);
  VERB(reg_dmabuf_mr);
  VERB(dereg_mr);
  VERB(create_comp_channel);
  VERB(destroy_comp_channel);
  VERB(create_cq);
  VERB(destroy_cq);
  VERB(get_cq_event);
  VERB(ack_cq_events);
  VERB(create_qp);
  VERB(modify_qp);
  VERB(query_qp);
  VERB(destroy_qp);
  VERB(get_async_event);
  VERB(ack_async_event);
  VERB(fork_init);
  VERB(is_fork_initialized);
  VERB(wc_status_str);
  VERB(event_type_str);
  VERB(node_type_str);
  VERB(port_state_str);
#undef VERB
  decltype(&::_ibv_query_gid_ex) query_gid_ex =
      find<decltype(&::_ibv_query_gid_ex)>("_ibv_query_gid_ex");
  decltype(&::verbs_double_counters) counters =
      find<decltype(&::verbs_double_counters)>("verbs_double_counters");
  decltype(&::verbs_double_inject) inject =
      find<decltype(&::verbs_double_inject)>("verbs_double_inject");

  verbs_double_counts counts() const {
    verbs_double_counts now{};
    counters(&now);
    return now;
  }

 private:
  template <typename Function>
  static Function find(const char* name) {
    static void* const library = dlopen(kLibraryPath, RTLD_NOW | RTLD_LOCAL);
    void* symbol = library == nullptr ? nullptr : dlsym(library, name);
    if (symbol == nullptr) throw std::runtime_error(std::string("the library lacks ") + name);
    return reinterpret_cast<Function>(symbol);
  }
};

}  // namespace gpurun::verbs_double
