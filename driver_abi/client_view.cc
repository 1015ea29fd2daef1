// Client view: opens the neighbour and asks it for the marker's export table.
#include "driver_abi/client_view.h"

#include <dlfcn.h>

#include <cstring>
#include <string>

#include "base/published_once.h"
#include "driver_abi/cuda_abi.h"

namespace gpurun::driver_abi {
namespace {

const ClientView* find_view(const void* address) {
  Dl_info self;
  if (dladdr(address, &self) == 0) return nullptr;
  const std::string own = self.dli_fname;
  const std::size_t slash = own.rfind('/');
  const std::string path =
      (slash == std::string::npos ? std::string() : own.substr(0, slash + 1)) + "libcuda.so.1";
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return nullptr;
  using GetTable = CUresult (*)(const void**, const CUuuid*);
  const auto get = reinterpret_cast<GetTable>(dlsym(library, "cuGetExportTable"));
  const void* table = nullptr;
  CUuuid id;
  std::memcpy(id.bytes, kClientMarker.data(), sizeof id.bytes);
  if (get == nullptr || get(&table, &id) != CUDA_SUCCESS) return nullptr;
  const auto* view = static_cast<const ClientView*>(table);
  return view->bytes >= sizeof(ClientView) ? view : nullptr;
}

}  // namespace

const ClientView* client_view_beside(const void* address) {
  static constinit PublishedOnce<const ClientView*> found;
  return found.get([address] { return find_view(address); });
}

}  // namespace gpurun::driver_abi
