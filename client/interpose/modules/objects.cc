// Module objects: how the objects come and go. Ended objects stay a while for threads that still
// read them.
#include "client/interpose/modules/objects.h"

#include <utility>
#include <vector>

#include "client/interpose/memory/memory_ranges.h"

namespace gpurun::client::interpose::modules {
namespace {

// The registry's mutex must be held.
void bury(Registry& all, std::unique_ptr<Function> function) {
  all.retired.push_back(std::move(function));
  if (all.retired.size() > Registry::kEndedMax) all.retired.pop_front();
}
void bury(Registry& all, std::unique_ptr<Loaded> loaded) {
  all.ended.push_back(std::move(loaded));
  if (all.ended.size() > Registry::kEndedMax) all.ended.pop_front();
}

void forget_function(const EntryContext& here, Registry& all, Function* function) {
  for (const auto& [context, each] : function->functions) {
    here.handles().retire(each->handle);
    bury(all, std::unique_ptr<Function>(each));
  }
  here.handles().retire(function->handle);
  bury(all, std::unique_ptr<Function>(function));
}

void forget_loaded(const EntryContext& here, Registry& all, Loaded* loaded) {
  for (const auto& [context, module] : loaded->modules) forget_loaded(here, all, module);
  for (const auto& [name, function] : loaded->functions) forget_function(here, all, function);
  all.deferred.erase(loaded->handle);
  all.alive.erase(loaded);
  const auto same = all.by_wrapper.find(loaded->wrapper);
  if (same != all.by_wrapper.end() && same->second == loaded) all.by_wrapper.erase(same);
  remove_ranges_of_owner(loaded->handle);
  here.handles().retire(loaded->handle);
  bury(all, std::unique_ptr<Loaded>(loaded));
}

}  // namespace

Function::Function(Loaded& loaded, std::shared_ptr<KernelTable> from, const Kernel& of)
    : owner(&loaded), table(std::move(from)), info(of) {
  for (unsigned i = 0; i < values.size(); ++i) {
    values[i].store(of.attribute(static_cast<int>(i)), std::memory_order_relaxed);
  }
}

Registry& registry() {
  static Registry* const all = new Registry;
  return *all;
}

int find_loaded(const EntryContext& here, Handle handle, HandleKind kind, Loaded** loaded) {
  if (const int result = here.check(handle, kind); result != 0) return result;
  *loaded = static_cast<Loaded*>(here.handles().object_of(handle));
  return *loaded == nullptr ? int{CUDA_ERROR_INVALID_HANDLE} : 0;
}

int find_ending(const EntryContext& here, Handle handle, HandleKind kind, Loaded** loaded) {
  if (const int result = here.check_end(handle, kind); result != 0) return result;
  *loaded = static_cast<Loaded*>(here.handles().object_of(handle));
  return *loaded == nullptr ? int{CUDA_ERROR_INVALID_HANDLE} : 0;
}

int find_function(const EntryContext& here, CUfunction given, Function** function) {
  const Handle handle = handle_of(given);
  const HandleKind kind =
      claimed_kind(handle) == HandleKind::kKernel ? HandleKind::kKernel : HandleKind::kFunction;
  if (const int result = here.check(handle, kind); result != 0) return result;
  *function = static_cast<Function*>(here.handles().object_of(handle));
  return *function == nullptr ? int{CUDA_ERROR_INVALID_HANDLE} : 0;
}

int find_kernel(const EntryContext& here, CUkernel given, Function** function) {
  if (const int result = here.check(handle_of(given), HandleKind::kKernel); result != 0) {
    return result;
  }
  *function = static_cast<Function*>(here.handles().object_of(handle_of(given)));
  return *function == nullptr ? int{CUDA_ERROR_INVALID_HANDLE} : 0;
}

void forget(const EntryContext& here, Loaded* loaded) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  forget_loaded(here, all, loaded);
}

void end_of_context(const EntryContext& here, Handle context) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  const std::vector<Loaded*> alive(all.alive.begin(), all.alive.end());
  std::erase_if(all.links, [context](const auto& each) {
    return each.second->context == context;  // retire_context() retires its handle.
  });
  for (Loaded* loaded : alive) {
    if (loaded->context == context) {
      forget_loaded(here, all, loaded);
      continue;
    }
    if (const auto it = loaded->modules.find(context); it != loaded->modules.end()) {
      forget_loaded(here, all, it->second);
      loaded->modules.erase(it);
    }
    for (const auto& [name, kernel] : loaded->functions) {
      const auto it = kernel->functions.find(context);
      if (it == kernel->functions.end()) continue;
      forget_function(here, all, it->second);
      kernel->functions.erase(it);
    }
    std::erase_if(loaded->variables,
                  [context](const auto& each) { return each.first.first == context; });
  }
}

}  // namespace gpurun::client::interpose::modules
