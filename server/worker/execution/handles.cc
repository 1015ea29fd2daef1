// HandleTable: a map by the whole handle. A poisoned entry keeps the failure of its creator.
#include "server/worker/execution/handles.h"

#include "driver_abi/semantics/handle_errors.h"
#include "protocol/calls/handle_form.h"
#include "server/worker/execution/call.h"

namespace gpurun::server {
namespace {

// Texture and surface objects and the like have the driver's own value on both sides.
bool is_minted(HandleKind kind) {
  return kind != HandleKind::kNone && kind < HandleKind::kTextureObject;
}

}  // namespace

int HandleTable::insert(std::uint64_t client_handle, const Entry& entry) {
  if (!is_minted(entry.kind) || protocol::claimed_handle_kind(client_handle) != entry.kind) {
    return kErrorInvalidHandle;
  }
  const std::lock_guard lock(mutex_);
  if (entries_.size() >= limits::kHandlesMax) return kErrorOutOfMemory;
  if (!entries_.emplace(client_handle, entry).second) return kErrorInvalidHandle;
  // The newest owner wins. The driver reuses a value when its former object has ended with its
  // context, and the worker does not learn of that end.
  if (entry.failure == 0) reverse_[{entry.value, entry.kind}] = client_handle;
  return 0;
}

int HandleTable::bind(std::uint64_t client_handle, HandleKind kind, DriverValue value) {
  return insert(client_handle, Entry{kind, 0, value, 0});
}

int HandleTable::poison(std::uint64_t client_handle, HandleKind kind, int result) {
  return insert(client_handle, Entry{kind, result == 0 ? kErrorUnknown : result, 0, 0});
}

HandleTable::Found HandleTable::find(std::uint64_t client_handle, HandleKind kind) const {
  const std::lock_guard lock(mutex_);
  const auto it = entries_.find(client_handle);
  if (it == entries_.end() || it->second.kind != kind)
    return {driver_abi::wrong_handle_error(kind), 0};
  if (it->second.failure != 0) return {it->second.failure, 0};
  return {0, it->second.value};
}

std::uint64_t HandleTable::client_handle_of(DriverValue value, HandleKind kind) const {
  const std::lock_guard lock(mutex_);
  const auto it = reverse_.find({value, kind});
  return it == reverse_.end() ? 0 : it->second;
}

bool HandleTable::forget_poisoned(std::uint64_t client_handle, HandleKind kind) {
  const std::lock_guard lock(mutex_);
  const auto it = entries_.find(client_handle);
  if (it == entries_.end() || it->second.kind != kind || it->second.failure == 0) return false;
  entries_.erase(it);
  return true;
}

HandleTable::Found HandleTable::erase(std::uint64_t client_handle, HandleKind kind) {
  const std::lock_guard lock(mutex_);
  const auto it = entries_.find(client_handle);
  if (it == entries_.end() || it->second.kind != kind)
    return {driver_abi::wrong_handle_error(kind), 0};
  const Entry entry = it->second;
  entries_.erase(it);
  if (entry.failure != 0) return {entry.failure, 0};
  const auto back = reverse_.find({entry.value, kind});
  if (back != reverse_.end() && back->second == client_handle) reverse_.erase(back);
  return {0, entry.value};
}

void HandleTable::retain(std::uint64_t client_handle) {
  const std::lock_guard lock(mutex_);
  const auto it = entries_.find(client_handle);
  if (it != entries_.end()) ++it->second.retained;
}

void HandleTable::release(std::uint64_t client_handle, HandleKind kind) {
  {
    const std::lock_guard lock(mutex_);
    const auto it = entries_.find(client_handle);
    if (it != entries_.end() && it->second.kind == kind && it->second.retained != 0) {
      --it->second.retained;
      return;
    }
  }
  (void)erase(client_handle, kind);
}

std::size_t HandleTable::size() const {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

}  // namespace gpurun::server
