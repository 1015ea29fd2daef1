// Loading an image: what is sent, what is waited for, and the names of kernels afterwards.
//
// An image of which nothing is known is one round trip (two when it is over 1 MiB and the worker
// does not have it, or comes with options for the compiler). Once this user has been told of
// its kernels (table_cache.h), a load of it is posted: by its digest if the worker keeps it, else
// with the image offered in case that the worker has lost it. A library whose image the program
// preserves and that nvcc's registration code made is not even sent before something in it is asked
// for, and then, if it has to be asked about, with
// every other one that waits and with its neighbours (neighbours.h), small ones that nobody has
// asked for yet: so a program of many source files does not wait once for each.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "client/interpose/modules/jit_request.h"
#include "client/interpose/modules/objects.h"
#include "protocol/module_calls.h"

namespace gpurun::client::interpose::modules {

// A module or library of `image`. `preserved`: not nullptr: the wrapper of nvcc's that the image is
// of, which stays where it is until the library's end. 0 and the handle; else the CUresult of the
// driver.
int load(Here& here, HandleKind kind, const driver_abi::Image& image, JitRequest& jit,
         const void* preserved, Handle* handle);

// Makes sure that the worker has `loaded`, which may be a round trip, and that its table is there.
int ensure(Here& here, Loaded* loaded);

// The kernel or function of that name, with a handle; `loaded` has been ensured.
int get_function(Here& here, Loaded* loaded, std::string_view name, Function** function);

// How many kernels the driver counts in `loaded`, which has been ensured: those that cannot run,
// too.
int count_kernels(Here& here, Loaded* loaded, unsigned* count);

// The function of `kernel` in the current context; the module of `library` there.
int function_of_kernel(Here& here, Function* kernel, Function** function);
int module_of_library(Here& here, Loaded* library, Loaded** module);

// A global variable of `loaded`, which has been ensured, in the current context. Asked for once.
int get_variable(Here& here, Loaded* loaded, const char* name, CUdeviceptr* address,
                 std::size_t* bytes);

// Tells the worker that it ends, and forgets it.
int unload(Here& here, Loaded* loaded);

}  // namespace gpurun::client::interpose::modules
