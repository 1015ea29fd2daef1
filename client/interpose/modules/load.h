// Loading an image: what the client sends, what it waits for, and how kernels get their handles.
//
// An unknown image costs one round trip. It costs two if it has options for the compiler, or if it
// is over 1 MiB and the worker does not have it.
//
// Once this user knows the image's kernels (table_cache.h), a load of it is posted. The load names
// the digest if the worker keeps the image. Otherwise it also offers the image, in case the worker
// has lost it.
//
// A library is deferred if nvcc's registration code made it and the program preserves its image. It
// is sent when the program first asks for something in it. If the worker must be asked about it,
// all other deferred libraries and small unused adjacent images (adjacent_fatbins.h) go with it. So
// a program of many source files does not wait once for each.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "client/interpose/modules/jit_request.h"
#include "client/interpose/modules/objects.h"
#include "protocol/calls/managed_variable.h"
#include "protocol/calls/module_calls.h"

namespace gpurun::client::interpose::modules {

// Loads a module or library of `image`. `preserved`: nvcc's wrapper of the image, which stays in
// place until the library's end. nullptr: none. Returns 0 and the handle, or the driver's CUresult.
int load(EntryContext& here, HandleKind kind, const driver_abi::Image& image, JitRequest& jit,
         const void* preserved, Handle* handle);

// Ensures that the worker has `loaded` and that its table is there. May cost a round trip.
int ensure(EntryContext& here, Loaded* loaded);

// The kernel or function of that name, with a handle. `loaded` must have been ensured.
int get_function(EntryContext& here, Loaded* loaded, std::string_view name, Function** function);

// The number of kernels that the driver counts in `loaded`, including those that cannot run.
// `loaded` must have been ensured.
int count_kernels(EntryContext& here, Loaded* loaded, unsigned* count);

// The function of `kernel` in the current context, and the module of `library` there.
int function_of_kernel(EntryContext& here, Function* kernel, Function** function);
int module_of_library(EntryContext& here, Loaded* library, Loaded** module);

// A global variable of `loaded` in the current context. `loaded` must have been ensured. The worker
// is asked once.
int get_variable(EntryContext& here, Loaded* loaded, const char* name, CUdeviceptr* address,
                 std::size_t* bytes);

// Asks the worker for a managed variable of `library`, which must have been ensured. Returns 0, or
// the worker's CUresult (protocol/calls/managed_variable.h). UNKNOWN: the answer is malformed.
// `*earlier`: the failure of an earlier call.
int ask_for_managed_variable(const EntryContext& here, const Loaded& library, const char* name,
                             protocol::ManagedVariable* variable, int* earlier);

// Notifies the worker of the unload and forgets `loaded`.
int unload(EntryContext& here, Loaded* loaded);

}  // namespace gpurun::client::interpose::modules
