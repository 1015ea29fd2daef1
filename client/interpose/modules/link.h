// Linking in the worker's driver (cuLink*): one round trip for each step, and for each
// 256 KiB of the image that comes out.
#pragma once

#include <memory>

#include "client/interpose/modules/objects.h"
#include "driver_abi/image_length.h"

namespace gpurun::client::interpose::modules {

// All: 0, or what the call returns, which may be an earlier call's failure although this one has
// done its work: then its output is set. `here` has been entered; but for the first they need no
// current context.

// `*link` with a handle, in the current context.
int create_link(const Here& here, const JitRequest& jit, std::shared_ptr<Link>* link);
// INVALID_HANDLE; the sticky error of the link's context, even for its end.
int find_link(const Here& here, Handle handle, std::shared_ptr<Link>* link);
// `name` may be nullptr.
int add_input(const Here& here, Link& link, CUjitInputType type, ByteView data, const char* name,
              const JitRequest& jit);
// The image lives as long as the link.
int complete_link(const Here& here, Link& link, ByteView* image);
int end_link(const Here& here, const Link& link);

// An image that the program passes by its address alone: one that a link has made is as long as the
// link has said, and is kept by `*kept`, whatever another thread does to the link. Else as
// driver_abi::image_at().
Result<driver_abi::Image> image_of_program(const void* image, std::shared_ptr<const Bytes>* kept);

}  // namespace gpurun::client::interpose::modules
