// Export tables: the ten tables as arrays of function pointers, constant at load.
#include "driver_abi/state/export_tables.h"
#include "driver_abi/state/library_view.h"

#include <pthread.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

#include "base/log.h"
#include "base/published_once.h"

namespace gpurun::driver_abi {
namespace {

constinit std::atomic<const ExportTableHost*> the_host{nullptr};

const ExportTableHost* host() { return the_host.load(std::memory_order_acquire); }

CUresult ready() {
  const ExportTableHost* driver = host();
  return driver == nullptr ? CUDA_ERROR_NOT_INITIALIZED : driver->ready();
}

#define GPURUN_RETURN_UNLESS_READY() \
  if (const CUresult state = ready(); state != CUDA_SUCCESS) return state

// A slot that no known program calls. Its unknown arguments stay untouched, because the caller owns
// them on both of CUDA's host ABIs.
template <unsigned kTable, std::size_t kSlot>
CUresult unused_slot() {
  GPURUN_LOG(kWarning, "export table %s: slot %zu was called, which is not served",
             kExportTables[kTable].name, kSlot);
  return CUDA_ERROR_NOT_SUPPORTED;
}

// CUDART --------------------------------------------------------------------------------------

CUresult cudart_load(CUmodule* module, const void* wrapper) {
  GPURUN_RETURN_UNLESS_READY();
  return host()->load_module(module, wrapper);
}

CUresult cudart_load_with_options(CUmodule* module, const void* wrapper, void*, void*,
                                  std::uint32_t) {
  return cudart_load(module, wrapper);
}

CUresult cudart_load_container(const void* container, CUmodule* module, void*, void*,
                               std::uint32_t) {
  return cudart_load(module, container);
}

CUresult cudart_primary_context(CUcontext* context, CUdevice device) {
  GPURUN_RETURN_UNLESS_READY();
  if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return host()->primary_context(device, context);
}

void cudart_hint(std::size_t) {}
CUresult cudart_nothing() { return CUDA_SUCCESS; }

// TOOLS_CB: flags of the calls that a profiler has subscribed to. There is no profiler.

constinit std::uint32_t callback_flags[kToolsCallbackFlags] = {};
constinit std::uint32_t domain_flags[kToolsDomainFlags] = {};

void tools_callback_flags(void** flags, std::size_t* count) {
  *flags = callback_flags;
  *count = kToolsCallbackFlags;
}

void tools_domain_flags(void** flags, std::size_t* count) {
  *flags = domain_flags;
  *count = kToolsDomainFlags;
}

// TOOLS_TLS -----------------------------------------------------------------------------------

// The given context, or the current one for NULL. INVALID_CONTEXT without a current context.
CUresult resolve_context(CUcontext given, CUcontext* context) {
  GPURUN_RETURN_UNLESS_READY();
  *context = given;
  if (given != nullptr) return CUDA_SUCCESS;
  const CUresult result = host()->current_context(context);
  if (result != CUDA_SUCCESS) return result;
  return *context == nullptr ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

CUresult tools_current_context(CUcontext* context) {
  CUcontext current = nullptr;
  const CUresult result = resolve_context(nullptr, &current);
  if (result == CUDA_SUCCESS) *context = current;
  return result;
}

// CLS -----------------------------------------------------------------------------------------

CUresult storage_put(CUcontext context, void* key, void* value,
                     ContextStorageDestructor destructor) {
  const CUresult result = resolve_context(context, &context);
  return result != CUDA_SUCCESS ? result : put_context_storage(context, key, value, destructor);
}

CUresult storage_delete(CUcontext context, void* key) {
  const CUresult result = resolve_context(context, &context);
  return result != CUDA_SUCCESS ? result : erase_context_storage(context, key);
}

CUresult storage_get(void** value, CUcontext context, void* key) {
  const CUresult result = resolve_context(context, &context);
  return result != CUDA_SUCCESS ? result : get_context_storage(context, key, value);
}

// CTXCHECK ------------------------------------------------------------------------------------

CUresult context_check(CUcontext, std::uint32_t* flags, void**) {
  *flags = 0;
  return CUDA_SUCCESS;
}

std::uint32_t context_check_mode() { return 0; }

// INTEGRITY -----------------------------------------------------------------------------------

CUresult integrity_value(std::uint32_t version, std::uint64_t unix_seconds, std::uint64_t out[2]);

// T2131, T6E16, T1734 -------------------------------------------------------------------------

CUresult context_id(CUcontext context, std::uint64_t* id) {
  const CUresult result = resolve_context(context, &context);
  if (result != CUDA_SUCCESS) return result;
  unsigned long long value = 0;
  const CUresult asked = host()->context_id(context, &value);
  if (asked == CUDA_SUCCESS) *id = value;
  return asked;
}

CUresult stream_object(CUcontext context, CUstream stream, void** object, int per_thread) {
  const CUresult result = resolve_context(context, &context);
  if (result != CUDA_SUCCESS) return result;
  unsigned long long id = 0;
  const CUresult asked = host()->stream_id(context, stream, per_thread, &id);
  if (asked == CUDA_SUCCESS) *object = stream_object_of(id);
  return asked;
}

CUresult stream_object_id(CUcontext context, void* object, std::uint64_t* id) {
  const CUresult result = resolve_context(context, &context);
  return result != CUDA_SUCCESS ? result : stream_id_of(object, id);
}

// The callback takes more than two arguments, in unknown ways. cuFFT uses these two.
using FunctionVisitor = void (*)(void* user, CUfunction function, void*, void*);

std::uint32_t visit_functions(CUcontext, CUmodule module, FunctionVisitor visit, void* user) {
  constexpr unsigned kFunctionsMax = 1U << 20;
  unsigned count = 0;
  if (ready() != CUDA_SUCCESS || host()->function_count(&count, module) != CUDA_SUCCESS ||
      count == 0 || count > kFunctionsMax)
    return 0;
  const std::unique_ptr<CUfunction[]> functions(new (std::nothrow) CUfunction[count]());
  if (functions == nullptr || host()->functions(functions.get(), count, module) != CUDA_SUCCESS)
    return 0;
  for (unsigned i = 0; i < count && visit != nullptr; ++i)
    visit(user, functions[i], nullptr, nullptr);
  return count;
}

CUresult multiprocessor_groups(const std::uint8_t** groups, std::uint64_t* count) {
  GPURUN_RETURN_UNLESS_READY();
  if (host()->multiprocessor_groups == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  unsigned long long value = 0;
  const CUresult result = host()->multiprocessor_groups(groups, &value);
  if (result == CUDA_SUCCESS) *count = value;
  return result;
}

// PROFILER ------------------------------------------------------------------------------------

// A profiler goes on without the device's events. It says nothing about their absence.
void say_no_profiler() {
  static constinit std::atomic<bool> said{false};
  if (said.exchange(true, std::memory_order_relaxed)) return;
  GPURUN_LOG(kWarning,
             "a profiler (CUPTI) gets no events of the device here; its events of the CPU are "
             "complete");
}

CUresult profiler_start() {
  say_no_profiler();
  return CUDA_ERROR_NOT_SUPPORTED;
}

// The arrays ----------------------------------------------------------------------------------

// One slot: a function of any signature, or the table's size.
union Slot {
  void (*function)();
  std::size_t bytes;
};
static_assert(sizeof(Slot) == 8);

template <unsigned kTable>
constexpr unsigned kSlots = kExportTables[kTable].slots;

template <unsigned kTable, std::size_t... kIndex>
Slot* unused_table(std::index_sequence<kIndex...>) {
  return new Slot[kSlots<kTable>]{
      Slot{reinterpret_cast<void (*)()>(&unused_slot<kTable, kIndex>)}...};
}

template <typename Function>
void set(Slot* table, unsigned slot, Function* function) {
  table[slot].function = reinterpret_cast<void (*)()>(function);
}

template <unsigned kTable>
Slot* new_table() {
  Slot* table = unused_table<kTable>(std::make_index_sequence<kSlots<kTable>>());
  if (kExportTables[kTable].has_size) table[0].bytes = kSlots<kTable> * sizeof(Slot);
  return table;
}

using Tables = std::array<const Slot*, kExportTableCount>;

Tables fill_tables() {
  Slot* cudart = new_table<kCudart>();
  set(cudart, export_slot::kCudartLoad, cudart_load);
  set(cudart, export_slot::kCudartPrimaryContext, cudart_primary_context);
  set(cudart, export_slot::kCudartLoadWithOptions, cudart_load_with_options);
  set(cudart, export_slot::kCudartHint, cudart_hint);
  set(cudart, export_slot::kCudartLoadContainer, cudart_load_container);
  set(cudart, export_slot::kCudartNothing, cudart_nothing);

  Slot* callbacks = new_table<kToolsCallbacks>();
  set(callbacks, export_slot::kToolsCallbackFlags, tools_callback_flags);
  set(callbacks, export_slot::kToolsDomainFlags, tools_domain_flags);

  Slot* thread_state = new_table<kToolsThreadState>();
  set(thread_state, export_slot::kToolsCurrentContext, tools_current_context);

  Slot* storage = new_table<kContextLocalStorage>();
  set(storage, export_slot::kStoragePut, storage_put);
  set(storage, export_slot::kStorageDelete, storage_delete);
  set(storage, export_slot::kStorageGet, storage_get);
  storage[export_slot::kStorageEnd].function = nullptr;

  Slot* check = new_table<kContextCheck>();
  set(check, export_slot::kContextCheck, context_check);
  set(check, export_slot::kContextCheckMode, context_check_mode);

  Slot* integrity = new_table<kIntegrity>();
  set(integrity, export_slot::kIntegrityValue, integrity_value);

  Slot* t2131 = new_table<kT2131>();
  set(t2131, export_slot::kContextId, context_id);
  set(t2131, export_slot::kStreamObjectId, stream_object_id);
  set(t2131, export_slot::kStreamObject, stream_object);

  Slot* t6e16 = new_table<kT6e16>();
  set(t6e16, export_slot::kVisitFunctions, visit_functions);

  Slot* t1734 = new_table<kT1734>();
  set(t1734, export_slot::kMultiprocessorGroups, multiprocessor_groups);

  Slot* profiler = new_table<kProfiler>();
  set(profiler, export_slot::kProfilerStart, profiler_start);
  profiler[0].bytes = kProfilerBytes;

  return {cudart,    callbacks, thread_state, storage, check,
          integrity, t2131,     t6e16,        t1734,   profiler};
}

// The arrays live until the process ends, also the few KiB of a thread that filled them as well.
const Tables& tables() {
  static constinit PublishedOnce<Tables> filled;
  return filled.get(fill_tables);
}

CUresult integrity_value(std::uint32_t version, std::uint64_t unix_seconds, std::uint64_t out[2]) {
  GPURUN_RETURN_UNLESS_READY();
  note_started_runtime(__builtin_return_address(0));
  int driver_version = 0;
  int device_count = 0;
  if (const CUresult result = host()->driver_version(&driver_version); result != CUDA_SUCCESS)
    return result;
  if (const CUresult result = host()->device_count(&device_count); result != CUDA_SUCCESS)
    return result;
  IntegrityValue value({
      .driver_version = static_cast<std::uint32_t>(driver_version),
      .version = version,
      .process_id = static_cast<std::uint32_t>(getpid()),
      .thread_id = static_cast<std::uint32_t>(pthread_self()),
      .cudart_table = reinterpret_cast<std::uintptr_t>(tables()[kCudart]),
      .integrity_table = reinterpret_cast<std::uintptr_t>(tables()[kIntegrity]),
      .integrity_function = reinterpret_cast<std::uintptr_t>(&integrity_value),
      .unix_seconds = unix_seconds,
  });
  for (int ordinal = 0; ordinal < device_count; ++ordinal) {
    IntegrityDevice device{};
    if (const CUresult result = host()->device_identity(ordinal, &device); result != CUDA_SUCCESS)
      return result;
    value.add(device);
  }
  const Md2Digest digest = value.finish();
  std::memcpy(out, digest.data(), digest.size());
  return CUDA_SUCCESS;
}

void log_refused(const CUuuid& id) {
  char text[33];
  for (unsigned i = 0; i < 16; ++i) {
    const auto byte = static_cast<unsigned char>(id.bytes[i]);
    text[2 * i] = "0123456789abcdef"[byte >> 4];
    text[2 * i + 1] = "0123456789abcdef"[byte & 15];
  }
  text[32] = '\0';
  GPURUN_LOG(kInfo, "cuGetExportTable: refused %s", text);
}

}  // namespace

void set_export_table_host(const ExportTableHost* host) noexcept {
  the_host.store(host, std::memory_order_release);
}

CUresult get_export_table(const void** table, const CUuuid* id) noexcept {
  if (table == nullptr || id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const unsigned index = find_export_table(*id); index < kExportTableCount) {
    *table = tables()[index];
    return CUDA_SUCCESS;
  }
  log_refused(*id);
  if (std::memcmp(id->bytes, kSubscriptionTable, sizeof id->bytes) == 0) say_no_profiler();
  *table = nullptr;
  return CUDA_ERROR_INVALID_VALUE;
}

}  // namespace gpurun::driver_abi
