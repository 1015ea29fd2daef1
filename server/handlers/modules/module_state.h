// ModuleState: the worker's facts about modules, libraries and kernels besides the driver's values.
// They are the owner of each object and the parameter layout of each kernel.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "driver_abi/row.h"
#include "server/images/image_store.h"
#include "server/worker/execution/handles.h"

namespace gpurun::server {

struct KernelLayout {
  std::uint64_t hash = 0;         // protocol::layout_hash(). 0: the driver does not report it.
  std::uint32_t block_bytes = 0;  // Of a parameter block.
};

// Any thread. All handles are the client's.
class ModuleState {
 public:
  ImageStore& images() { return images_; }

  // `child` ends with `owner`: a module with its context, a function with its module.
  void own(std::uint64_t owner, std::uint64_t child, HandleKind kind);
  // Kept until the owner of the function ends. Not kept for a function without an owner.
  void set_layout(std::uint64_t function, const KernelLayout& layout);
  // Nothing if it was not set.
  std::optional<KernelLayout> layout(std::uint64_t function) const;
  // Forgets everything that `owner` owns, here and in `handles`, but not the handle itself.
  void end(std::uint64_t owner, HandleTable& handles);

 private:
  using Children = std::unordered_map<std::uint64_t, HandleKind>;

  ImageStore images_;
  mutable std::mutex mutex_;
  std::unordered_map<std::uint64_t, Children> children_;     // Guarded by mutex_.
  std::unordered_map<std::uint64_t, std::uint64_t> owners_;  // Guarded by mutex_.
  std::unordered_map<std::uint64_t, KernelLayout> layouts_;  // Guarded by mutex_.
};

}  // namespace gpurun::server
