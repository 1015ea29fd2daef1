// Library: each function under the version with which rdma-core has exported it since.
#include "transport/rdma/library.h"

#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <link.h>

#include <cerrno>
#include <mutex>

// The header replaces these by macros.
#undef ibv_get_device_list
#undef ibv_query_port
#undef ibv_reg_mr

namespace gpurun::transport::rdma {
namespace {

// X(version, result, name, (parameters), (arguments)). rdma-core's libibverbs.map.in has the
// versions, and vendors' libraries keep them.
#define GPURUN_VERBS(X)                                                                            \
  X("IBVERBS_1.1", ibv_device**, ibv_get_device_list, (int* count), (count))                       \
  X("IBVERBS_1.1", const char*, ibv_get_device_name, (ibv_device * device), (device))              \
  X("IBVERBS_1.1", ibv_context*, ibv_open_device, (ibv_device * device), (device))                 \
  X("IBVERBS_1.1", int, ibv_close_device, (ibv_context * context), (context))                      \
  X("IBVERBS_1.1", int, ibv_query_device, (ibv_context * context, ibv_device_attr * into),         \
    (context, into))                                                                               \
  X("IBVERBS_1.1", int, ibv_query_port,                                                            \
    (ibv_context * context, std::uint8_t port, _compat_ibv_port_attr * into),                      \
    (context, port, into))                                                                         \
  X("IBVERBS_1.1", int, ibv_query_pkey,                                                            \
    (ibv_context * context, std::uint8_t port, int index, __be16* into),                           \
    (context, port, index, into))                                                                  \
  X("IBVERBS_1.11", int, _ibv_query_gid_ex,                                                        \
    (ibv_context * context, std::uint32_t port, std::uint32_t index, ibv_gid_entry * into,         \
     std::uint32_t flags, std::size_t size),                                                       \
    (context, port, index, into, flags, size))                                                     \
  X("IBVERBS_1.1", ibv_pd*, ibv_alloc_pd, (ibv_context * context), (context))                      \
  X("IBVERBS_1.1", int, ibv_dealloc_pd, (ibv_pd * pd), (pd))                                       \
  X("IBVERBS_1.1", ibv_mr*, ibv_reg_mr,                                                            \
    (ibv_pd * pd, void* address, std::size_t bytes, int access), (pd, address, bytes, access))     \
  X("IBVERBS_1.8", ibv_mr*, ibv_reg_mr_iova2,                                                      \
    (ibv_pd * pd, void* address, std::size_t bytes, std::uint64_t iova, unsigned access),          \
    (pd, address, bytes, iova, access))                                                            \
  X("IBVERBS_1.1", int, ibv_dereg_mr, (ibv_mr * mr), (mr))                                         \
  X("IBVERBS_1.0", ibv_comp_channel*, ibv_create_comp_channel, (ibv_context * context), (context)) \
  X("IBVERBS_1.0", int, ibv_destroy_comp_channel, (ibv_comp_channel * channel), (channel))         \
  X("IBVERBS_1.1", ibv_cq*, ibv_create_cq,                                                         \
    (ibv_context * context, int size, void* user, ibv_comp_channel* channel, int vector),          \
    (context, size, user, channel, vector))                                                        \
  X("IBVERBS_1.1", int, ibv_destroy_cq, (ibv_cq * cq), (cq))                                       \
  X("IBVERBS_1.1", int, ibv_get_cq_event, (ibv_comp_channel * channel, ibv_cq * *cq, void** user), \
    (channel, cq, user))                                                                           \
  X("IBVERBS_1.1", ibv_qp*, ibv_create_qp, (ibv_pd * pd, ibv_qp_init_attr * wanted), (pd, wanted)) \
  X("IBVERBS_1.1", int, ibv_modify_qp, (ibv_qp * qp, ibv_qp_attr * wanted, int mask),              \
    (qp, wanted, mask))                                                                            \
  X("IBVERBS_1.1", int, ibv_destroy_qp, (ibv_qp * qp), (qp))                                       \
  X("IBVERBS_1.1", const char*, ibv_wc_status_str, (ibv_wc_status status), (status))

struct Functions {
#define X(version, result, name, parameters, arguments) result(*name) parameters = nullptr;
  GPURUN_VERBS(X)
#undef X
  void (*ibv_free_device_list)(ibv_device** list) = nullptr;
  void (*ibv_ack_cq_events)(ibv_cq* cq, unsigned count) = nullptr;
  // Optional.
  ibv_mr* (*ibv_reg_dmabuf_mr)(ibv_pd* pd, std::uint64_t offset, std::size_t bytes,
                               std::uint64_t first, int file, int access) = nullptr;
};

struct Opened {
  Status status;
  std::string file;
  Functions functions;
};

Opened open() {
  Opened opened;
  void* const library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const why = dlerror();
    opened.status = Status(Code::kUnavailable, std::string("no RDMA library: ") +
                                                   (why != nullptr ? why : "libibverbs.so.1"));
    return opened;
  }
  link_map* map = nullptr;
  if (dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 && map != nullptr) opened.file = map->l_name;
  const char* missing = nullptr;
  const auto find = [&](const char* version, const char* name, auto& function) {
    void* const found = dlvsym(library, name, version);
    if (found == nullptr && missing == nullptr) missing = name;
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(found);
  };
#define X(version, result, name, parameters, arguments) find(version, #name, opened.functions.name);
  GPURUN_VERBS(X)
#undef X
  find("IBVERBS_1.1", "ibv_free_device_list", opened.functions.ibv_free_device_list);
  find("IBVERBS_1.1", "ibv_ack_cq_events", opened.functions.ibv_ack_cq_events);
  // For kernels that do not copy registered memory at fork(2) (ibv_fork_init(3)). It fails when the
  // program has registered memory before, and then the program has decided.
  int (*fork_init)() = nullptr;
  find("IBVERBS_1.1", "ibv_fork_init", fork_init);
  opened.functions.ibv_reg_dmabuf_mr = reinterpret_cast<decltype(Functions::ibv_reg_dmabuf_mr)>(
      dlvsym(library, "ibv_reg_dmabuf_mr", "IBVERBS_1.12"));
  if (missing == nullptr) {
    static_cast<void>(fork_init());
  } else {
    opened.status = Status(Code::kUnavailable, opened.file + " has no " + missing);
  }
  return opened;  // Never closed: devices may be in use until the process ends.
}

// Immortal, because the program's exit handlers may still use a connection.
const Opened& library() {
  static const Opened* const opened = new Opened(open());
  return *opened;
}

}  // namespace

Status open_library() { return library().status; }

std::string library_file() { return library().file; }

ibv_mr* register_dma_buf(ibv_pd* pd, std::uint64_t offset, std::size_t bytes, std::uint64_t first,
                         int file, int access) {
  const auto function = library().functions.ibv_reg_dmabuf_mr;
  if (function != nullptr) return function(pd, offset, bytes, first, file, access);
  errno = ENOSYS;
  return nullptr;
}

}  // namespace gpurun::transport::rdma

// Called once the library is open.
extern "C" {
#define X(version, result, name, parameters, arguments) \
  result name parameters { return gpurun::transport::rdma::library().functions.name arguments; }
GPURUN_VERBS(X)
#undef X

void ibv_free_device_list(ibv_device** list) {
  gpurun::transport::rdma::library().functions.ibv_free_device_list(list);
}
void ibv_ack_cq_events(ibv_cq* cq, unsigned count) {
  gpurun::transport::rdma::library().functions.ibv_ack_cq_events(cq, count);
}
}
