// Links: linking in the worker's driver (cuLink*). Costs one round trip for each step, and one for
// each 256 KiB of the linked image.
#pragma once

#include <memory>

#include "client/interpose/modules/objects.h"
#include "driver_abi/image_length.h"

namespace gpurun::client::interpose::modules {

// All return 0, or the call's result. That may be an earlier call's failure although this call did
// its work. In that case the output is set. `here` must have been entered. Only create_link() needs
// a current context.

// Creates `*link` with a handle, in the current context.
int create_link(const EntryContext& here, const JitRequest& jit, std::shared_ptr<Link>* link);
// Returns INVALID_HANDLE, or the sticky error of the link's context, even for a call that ends it.
int find_link(const EntryContext& here, Handle handle, std::shared_ptr<Link>* link);
// `name` may be nullptr.
int add_input(const EntryContext& here, Link& link, CUjitInputType type, ByteView data,
              const char* name, const JitRequest& jit);
// The image lives as long as the link.
int complete_link(const EntryContext& here, Link& link, ByteView* image);
int end_link(const EntryContext& here, const Link& link);

// The image that the program passes by its address alone. For the output of a link the length is
// known, and `*kept` keeps its bytes alive even if another thread ends the link. For other images
// this is driver_abi::image_at().
Result<driver_abi::Image> image_of_program(const void* image, std::shared_ptr<const Bytes>* kept);

}  // namespace gpurun::client::interpose::modules
