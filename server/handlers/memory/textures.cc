// Textures: translates the handles in texture and surface objects, and ends the arrays that are
// parts of others.
#include "server/handlers/memory/textures.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "driver_abi/opcodes.h"
#include "server/handlers/state/handler_state.h"

namespace gpurun::server {
namespace {

namespace opcode = driver_abi::opcode;
using protocol::UnpackedCall;

TextureRegistry& book_of(const Call& call) { return HandlerState::of(call).textures(); }

template <typename T>
T as(DriverValue value) {
  return reinterpret_cast<T>(static_cast<std::uintptr_t>(value));
}
template <typename T>
DriverValue value_of(T handle) {
  return reinterpret_cast<std::uintptr_t>(handle);
}

HandleKind object_kind(const Call& call) {
  switch (call.header().opcode) {
    case opcode::cuSurfObjectCreate:
    case opcode::cuSurfObjectDestroy:
    case opcode::cuSurfObjectGetResourceDesc:
      return HandleKind::kSurfaceObject;
    default:
      return HandleKind::kTextureObject;
  }
}

// Parameters of cu{Tex,Surf}ObjectCreate: the object, and its resource.
int translate_resource(Call& call, UnpackedCall& unpacked) {
  CUDA_RESOURCE_DESC resource;
  const MutableBytes place = unpacked.memory(1);
  if (place.size() != sizeof resource) return kErrorInvalidValue;
  std::memcpy(&resource, place.data(), sizeof resource);
  const auto find = [&call](auto& handle, HandleKind kind) {
    const HandleTable::Found found = call.handles().find(value_of(handle), kind);
    if (found.result == 0) handle = as<std::decay_t<decltype(handle)>>(found.value);
    return found.result == 0 ? 0 : kErrorInvalidValue;
  };
  int result = 0;
  switch (resource.resType) {
    case CU_RESOURCE_TYPE_ARRAY:
      result = find(resource.res.array.hArray, HandleKind::kArray);
      break;
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
      result = find(resource.res.mipmap.hMipmappedArray, HandleKind::kMipmappedArray);
      break;
    case CU_RESOURCE_TYPE_LINEAR:
    case CU_RESOURCE_TYPE_PITCH2D:
      break;
    default:
      return kErrorInvalidValue;
  }
  std::memcpy(place.data(), &resource, sizeof resource);
  return result;
}

int keep_object(Call& call, UnpackedCall& unpacked) {
  const auto made = unpacked.handles(0);
  if (!made.empty()) book_of(call).add(object_kind(call), made.front());
  return 0;
}

// The object is the first parameter of calls that destroy it, and the second of queries.
int must_live(Call& call, std::uint64_t value) {
  return book_of(call).lives(object_kind(call), value) ? 0 : kErrorInvalidValue;
}
int check_ended(Call& call, UnpackedCall& unpacked) { return must_live(call, unpacked.word(0)); }
int check_asked(Call& call, UnpackedCall& unpacked) { return must_live(call, unpacked.word(1)); }
int forget_object(Call& call, UnpackedCall& unpacked) {
  book_of(call).remove(object_kind(call), unpacked.word(0));
  return 0;
}

// No handle of the driver leaves the worker.
int show_resource(Call& call, UnpackedCall& unpacked) {
  CUDA_RESOURCE_DESC resource;
  const MutableBytes place = unpacked.memory(0);
  if (place.size() != sizeof resource) return kErrorInvalidValue;
  std::memcpy(&resource, place.data(), sizeof resource);
  const auto show = [&call](auto& handle, HandleKind kind) {
    handle =
        as<std::decay_t<decltype(handle)>>(call.handles().client_handle_of(value_of(handle), kind));
  };
  if (resource.resType == CU_RESOURCE_TYPE_ARRAY) {
    show(resource.res.array.hArray, HandleKind::kArray);
  } else if (resource.resType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY) {
    show(resource.res.mipmap.hMipmappedArray, HandleKind::kMipmappedArray);
  }
  std::memcpy(place.data(), &resource, sizeof resource);
  return 0;
}

// cuMipmappedArrayGetLevel, cuArrayGetPlane: the part, the whole.
int keep_part(Call& call, UnpackedCall& unpacked) {
  const auto part = unpacked.handles(0);
  // A part that was known before is already listed.
  if (!part.empty() && part.front() == unpacked.minted(0)) {
    book_of(call).add_part(unpacked.word(1), part.front());
  }
  return 0;
}

// Parts end first, so that no call reaches them while the driver ends the whole.
int end_parts(Call& call, UnpackedCall& unpacked) {
  std::vector<std::uint64_t> parts = book_of(call).take_parts(unpacked.word(0));
  while (!parts.empty()) {
    const std::uint64_t part = parts.back();
    parts.pop_back();
    const std::vector<std::uint64_t> within = book_of(call).take_parts(part);  // Planes of levels.
    parts.insert(parts.end(), within.begin(), within.end());
    (void)call.handles().erase(part, HandleKind::kArray);
  }
  return 0;
}

template <int (*Before)(Call&, UnpackedCall&), int (*After)(Call&, UnpackedCall&)>
CallOutcome run_around(Call& call) {
  return HandlerState::of(call).dispatch().run(call, {Before, After});
}

}  // namespace

void TextureRegistry::add(HandleKind kind, std::uint64_t value) {
  const std::lock_guard lock(mutex_);
  (kind == HandleKind::kSurfaceObject ? surfaces_ : textures_).insert(value);
}

bool TextureRegistry::lives(HandleKind kind, std::uint64_t value) const {
  const std::lock_guard lock(mutex_);
  return (kind == HandleKind::kSurfaceObject ? surfaces_ : textures_).count(value) != 0;
}

void TextureRegistry::remove(HandleKind kind, std::uint64_t value) {
  const std::lock_guard lock(mutex_);
  (kind == HandleKind::kSurfaceObject ? surfaces_ : textures_).erase(value);
}

void TextureRegistry::add_part(std::uint64_t whole, std::uint64_t part) {
  const std::lock_guard lock(mutex_);
  parts_[whole].push_back(part);
}

std::vector<std::uint64_t> TextureRegistry::take_parts(std::uint64_t whole) {
  const std::lock_guard lock(mutex_);
  const auto found = parts_.find(whole);
  if (found == parts_.end()) return {};
  std::vector<std::uint64_t> parts = std::move(found->second);
  parts_.erase(found);
  return parts;
}

void add_texture_handlers(Handlers& handlers) {
  for (const char* symbol : {"cuTexObjectCreate", "cuSurfObjectCreate"}) {
    set_handler(handlers, symbol, &run_around<translate_resource, keep_object>);
  }
  for (const char* symbol : {"cuTexObjectDestroy", "cuSurfObjectDestroy"}) {
    set_handler(handlers, symbol, &run_around<check_ended, forget_object>);
  }
  for (const char* symbol : {"cuTexObjectGetResourceDesc", "cuSurfObjectGetResourceDesc"}) {
    set_handler(handlers, symbol, &run_around<check_asked, show_resource>);
  }
  for (const char* symbol : {"cuTexObjectGetTextureDesc", "cuTexObjectGetResourceViewDesc"}) {
    set_handler(handlers, symbol, &run_around<check_asked, nullptr>);
  }
  for (const char* symbol : {"cuMipmappedArrayGetLevel", "cuArrayGetPlane"}) {
    set_handler(handlers, symbol, &run_around<nullptr, keep_part>);
  }
  for (const char* symbol : {"cuArrayDestroy", "cuMipmappedArrayDestroy"}) {
    set_handler(handlers, symbol, &run_around<end_parts, nullptr>);
  }
}

}  // namespace gpurun::server
