// Library: libibverbs, opened at run time. Nothing links it. So one binary runs with rdma-core's
// library, with a vendor's, and on machines without any.
//
// <infiniband/verbs.h> declares functions, and defines others in the header that call through a
// device's own table. library.cc defines the declared ones that gpurun uses. They call the opened
// library, so all of the header can be used once open_library() has returned success.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/result.h"

struct ibv_mr;
struct ibv_pd;

namespace gpurun::transport::rdma {

// Opens the library once per process, and keeps it. Any thread.
//   kUnavailable  no such file, or it lacks a function under its version. The message names the
//                 reason.
Status open_library();

// The file of the library that is open, for messages. Empty: no library is open.
std::string library_file();

// As ibv_reg_dmabuf_mr(3). Older libraries than that of rdma-core 34 lack the function, and older
// headers do not declare it. nullptr with errno ENOSYS: the library lacks it.
ibv_mr* register_dma_buf(ibv_pd* pd, std::uint64_t offset, std::size_t bytes, std::uint64_t first,
                         int file, int access);

}  // namespace gpurun::transport::rdma
