// Printing images: whether a code image may have kernels that print, which a wait for them must
// release (server/worker/execution/skipped_waits.h).
#pragma once

#include "driver_abi/image_length.h"

namespace gpurun::server {

// False if the image is readable and names neither vprintf nor __assertfail, the functions behind
// printf and assert (CUDA Programming Guide, "Formatted Output"; NVVM's libdevice calls neither).
// Also true for forms that are not readable, such as NVVM IR, and for images over a few MiB. Any
// thread. It throws nothing but std::bad_alloc.
bool may_print(const driver_abi::Image& image);

}  // namespace gpurun::server
