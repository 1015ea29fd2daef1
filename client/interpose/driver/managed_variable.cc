// Managed variable: cuLibraryGetManaged, in steps. The worker finds the variable, and then this
// process maps memory there.
#include <mutex>
#include <string>
#include <string_view>

#include "client/interpose/call/refusals.h"
#include "client/interpose/capture/capture_count.h"
#include "client/interpose/custom.h"
#include "client/interpose/driver/memory_sharing.h"
#include "client/interpose/memory/managed_variables.h"
#include "client/interpose/modules/load.h"

namespace gpurun::client::interpose {
namespace {

using modules::Loaded;

// False: the program has not asked for it yet.
bool find_known(const Loaded& library, const char* name, Loaded::Variable* variable) {
  const std::lock_guard lock(modules::registry().mutex);
  const auto known = library.managed.find(std::string_view(name));
  if (known == library.managed.end()) return false;
  *variable = known->second;
  return true;
}

// Returns the call's result. `*earlier`: the failure of an earlier call.
int open_for_host(const EntryContext& here, Loaded& library, const char* name,
                  Loaded::Variable* variable, int* earlier) {
  if (!here.session().may_mirror_host_memory()) {
    return refuse_managed_variable(
        name, "GPURUN_HOST_MEMORY=copy forbids it, or the server's gpurun is too old for it");
  }
  protocol::ManagedVariable found;
  int result = modules::ask_for_managed_variable(here, library, name, &found, earlier);
  if (result == CUDA_ERROR_NOT_SUPPORTED) {
    return refuse_managed_variable(name, "the server's driver or GPU cannot share it");
  }
  if (result == CUDA_ERROR_OUT_OF_MEMORY) {
    return refuse_managed_variable(name, "the server has no memory for a copy of it");
  }
  if (result != 0) return result;
  // Kernels may have used the variable, and a wait for them may have been answered early.
  const MemorySharing sharing(here);
  if (!capturing_somewhere()) result = sharing.settle();
  if (*earlier == 0) *earlier = result;
  const std::string why = open_managed_variable(here, library.handle, found, &result);
  if (result != 0) return result;
  if (!why.empty()) return refuse_managed_variable(name, why.c_str());
  *variable = {found.address, static_cast<std::size_t>(found.bytes)};
  const std::lock_guard lock(modules::registry().mutex);
  library.managed[name] = *variable;
  return 0;
}

}  // namespace
}  // namespace gpurun::client::interpose

namespace gpurun::client::interpose::custom {

// No context need be current. The runtime looks up the program's variables before it makes one
// current.
CUresult cuLibraryGetManaged(CUdeviceptr* dptr, size_t* bytes, CUlibrary library,
                             const char* name) {
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  EntryContext here;
  if (const int result = here.enter(); result != 0) return cuda(result);
  here.context = find_context(*here.process, here.lane->context());
  Loaded* loaded = nullptr;
  int result = modules::find_loaded(here, handle_of(library), HandleKind::kLibrary, &loaded);
  if (result == 0) result = modules::ensure(here, loaded);
  if (result != 0) return cuda(result);
  Loaded::Variable variable;
  int earlier = 0;
  if (!find_known(*loaded, name, &variable)) {
    result = open_for_host(here, *loaded, name, &variable, &earlier);
    if (result != 0) return cuda(result);
  }
  if (dptr != nullptr) *dptr = variable.address;
  if (bytes != nullptr) *bytes = variable.bytes;
  return cuda(earlier);
}

}  // namespace gpurun::client::interpose::custom
