// TextureRegistry: texture and surface objects, which have the driver's value on both sides. It
// also knows the arrays that are parts of others (levels, planes) and end with them.
//
// A client may name any value, but only live objects reach the driver. Any thread. Locks are short.
#pragma once

#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "server/worker/execution/call.h"

namespace gpurun::server {

class TextureRegistry {
 public:
  // `kind`: kTextureObject or kSurfaceObject.
  void add(HandleKind kind, std::uint64_t value);
  bool lives(HandleKind kind, std::uint64_t value) const;
  void remove(HandleKind kind, std::uint64_t value);

  // The client's handles.
  void add_part(std::uint64_t whole, std::uint64_t part);
  std::vector<std::uint64_t> take_parts(std::uint64_t whole);

 private:
  mutable std::mutex mutex_;
  std::unordered_set<std::uint64_t> textures_;
  std::unordered_set<std::uint64_t> surfaces_;
  std::unordered_map<std::uint64_t, std::vector<std::uint64_t>> parts_;
};

void add_texture_handlers(Handlers& handlers);

}  // namespace gpurun::server
