// Client view: the view of gpurun's client library for libraries that lie beside it.
#pragma once

#include "driver_abi/client_marker.h"

namespace gpurun::driver_abi {

// The view of the libcuda.so.1 in the folder of the library that contains `address`. Opens it if
// necessary, and never closes it, because programs ask while they end. nullptr: there is no
// such library, or it is another one. The same answer from then on. Any thread.
const ClientView* client_view_beside(const void* address);

}  // namespace gpurun::driver_abi
