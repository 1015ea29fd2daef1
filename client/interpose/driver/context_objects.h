// Context objects: the end of the objects of a context's handles.
#pragma once

#include "client/log/handles.h"

namespace gpurun::client::interpose {

// Ends the object of a handle of a context that ends. Calls the function of the object's kind.
void end_object(HandleKind kind, void* object) noexcept;

// The functions of the kinds that have objects (stream.cc, array.cc). nullptr: they do nothing.
void end_stream(void* object) noexcept;
void end_array(void* object) noexcept;
void end_mipmapped_array(void* object) noexcept;

}  // namespace gpurun::client::interpose
