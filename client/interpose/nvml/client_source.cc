// Client source: the facts of libnvidia-ml.so.1 for a program under gpurun. They come from the
// session of the client's libcuda.so.1, which lies beside this library.
#include "driver_abi/client_view.h"

namespace gpurun::driver_abi {
namespace {

// nullptr: the library beside this one is not the client library.
const NvmlSource* session() {
  const ClientView* view = client_view_beside(reinterpret_cast<const void*>(&session));
  return view == nullptr ? nullptr : view->nvml;
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
