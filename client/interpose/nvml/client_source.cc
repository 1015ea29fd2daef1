// Client source: the facts of libnvidia-ml.so.1 for a program under gpurun. They come from the
// session of the client's libcuda.so.1, which lies beside this library.
#include <dlfcn.h>

#include <cstring>
#include <string>

#include "base/published_once.h"
#include "driver_abi/client_marker.h"
#include "driver_abi/cuda_abi.h"

namespace gpurun::driver_abi {
namespace {

const NvmlSource* find_session() {
  Dl_info self;
  if (dladdr(reinterpret_cast<const void*>(&find_session), &self) == 0) return nullptr;
  const std::string own = self.dli_fname;
  const std::size_t slash = own.rfind('/');
  const std::string path =
      (slash == std::string::npos ? std::string() : own.substr(0, slash + 1)) + "libcuda.so.1";
  // Never closed, because programs ask while they end.
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return nullptr;
  using GetTable = CUresult (*)(const void**, const CUuuid*);
  const auto get = reinterpret_cast<GetTable>(dlsym(library, "cuGetExportTable"));
  const void* table = nullptr;
  CUuuid id;
  std::memcpy(id.bytes, kClientMarker.data(), sizeof id.bytes);
  if (get == nullptr || get(&table, &id) != CUDA_SUCCESS) return nullptr;
  const auto* view = static_cast<const ClientView*>(table);
  return view->bytes >= sizeof(ClientView) ? view->nvml : nullptr;
}

// nullptr: the library beside this one is not the client library.
const NvmlSource* session() {
  static constinit PublishedOnce<const NvmlSource*> found;
  return found.get(find_session);
}

// The front calls only open() until it has succeeded.
constexpr NvmlSource kSource = {
    .open = [] { return session() == nullptr ? kNvmlDriverNotLoaded : session()->open(); },
    .device_count = [] { return session()->device_count(); },
    .device = [](unsigned index, NvmlDevice* device) { return session()->device(index, device); },
    .used_bytes = [](unsigned index,
                     std::uint64_t* used) { return session()->used_bytes(index, used); },
    .driver_version = [] { return session()->driver_version(); },
    .cuda_version = [] { return session()->cuda_version(); },
    .readings = nullptr,
    .processes =
        [](unsigned index, NvmlProcess* processes, unsigned capacity, unsigned* count) {
          return session()->processes(index, processes, capacity, count);
        },
    .peer_access = [](unsigned from, unsigned to) { return session()->peer_access(from, to); },
    .topology_level = [](unsigned from,
                         unsigned to) { return session()->topology_level(from, to); },
};

}  // namespace

const NvmlSource& nvml_source() noexcept { return kSource; }

}  // namespace gpurun::driver_abi
