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
  if (entry.owner != 0) own(entry.owner, client_handle);
  return 0;
}

void HandleTable::own(std::uint64_t owner, std::uint64_t member) {
  owned_.add(owner, member, [this](std::uint64_t each) { return entries_.count(each) != 0; });
}

void HandleTable::give(std::uint64_t client_handle, std::uint64_t owner) {
  const std::lock_guard lock(mutex_);
  const auto it = entries_.find(client_handle);
  if (it == entries_.end()) return;
  it->second.owner = owner;
  own(owner, client_handle);
}

int HandleTable::bind(std::uint64_t client_handle, HandleKind kind, DriverValue value,
                      std::uint64_t owner) {
  return insert(client_handle, Entry{kind, 0, value, 0, owner});
}

int HandleTable::poison(std::uint64_t client_handle, HandleKind kind, int result,
                        std::uint64_t owner) {
  return insert(client_handle, Entry{kind, result == 0 ? kErrorUnknown : result, 0, 0, owner});
}

std::uint64_t HandleTable::owner_of(std::uint64_t client_handle) const {
  const std::lock_guard lock(mutex_);
  const auto it = entries_.find(client_handle);
  return it == entries_.end() ? 0 : it->second.owner;
}

bool HandleTable::forget(std::uint64_t client_handle) {
  const auto it = entries_.find(client_handle);
  if (it == entries_.end()) return false;
  const Entry entry = it->second;
  entries_.erase(it);
  if (entry.failure != 0) return true;
  const auto back = reverse_.find({entry.value, entry.kind});
  if (back != reverse_.end() && back->second == client_handle) reverse_.erase(back);
  return true;
}

std::vector<DriverValue> HandleTable::forget_owned(std::uint64_t owner) {
  std::vector<DriverValue> graphs;
  for (const std::uint64_t each : owned_.take(owner)) {
    const auto it = entries_.find(each);
    if (it == entries_.end()) continue;
    if (it->second.kind == HandleKind::kGraph) graphs.push_back(it->second.value);
    forget(each);
  }
  return graphs;
}

std::vector<DriverValue> HandleTable::end_owned(std::uint64_t owner) {
  const std::lock_guard lock(mutex_);
  return forget_owned(owner);
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
  (void)forget_owned(client_handle);
  return forget(client_handle);
}

HandleTable::Found HandleTable::erase(std::uint64_t client_handle, HandleKind kind) {
  const std::lock_guard lock(mutex_);
  const auto it = entries_.find(client_handle);
  if (it == entries_.end() || it->second.kind != kind)
    return {driver_abi::wrong_handle_error(kind), 0};
  const Found found{it->second.failure, it->second.value};
  (void)forget_owned(client_handle);
  forget(client_handle);
  return found;
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
