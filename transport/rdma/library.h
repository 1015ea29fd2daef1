// Library: libibverbs, opened at run time. Nothing links it. So one binary runs with rdma-core's
// library, with a vendor's, and on machines without any.
//
// <infiniband/verbs.h> declares functions, and defines others in the header that call through a
// device's own table. library.cc defines the declared ones that gpurun uses. They call the opened
// library, so all of the header can be used once open_library() has returned success.
#pragma once

#include <string>

#include "base/result.h"

namespace gpurun::transport::rdma {

// Opens the library once per process, and keeps it. Any thread.
//   kUnavailable  no such file, or it lacks a function under its version. The message names the
//                 reason.
Status open_library();

// The file of the library that is open, for messages. Empty: no library is open.
std::string library_file();

}  // namespace gpurun::transport::rdma
