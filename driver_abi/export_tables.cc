// Export tables: the nine tables as arrays of function pointers, constant at load.
#include "driver_abi/export_tables.h"
#include "driver_abi/library_view.h"

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

enum TableIndex : unsigned {
  kCudart,
  kToolsCallbacks,
  kToolsThreadState,
  kContextLocalStorage,
  kContextCheck,
  kIntegrity,
  kT2131,
  kT6e16,
  kT1734,
};

constexpr ExportTableDescription kDescriptions[kExportTableCount] = {
    {"CUDART",
     {0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a, 0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d,
      0xf9},
     13,
     true},
    {"TOOLS_CB",
     {0xa0, 0x94, 0x79, 0x8c, 0x2e, 0x74, 0x2e, 0x74, 0x93, 0xf2, 0x08, 0x00, 0x20, 0x0c, 0x0a,
      0x66},
     7,
     true},
    {"TOOLS_TLS",
     {0x42, 0xd8, 0x5a, 0x81, 0x23, 0xf6, 0xcb, 0x47, 0x82, 0x98, 0xf6, 0xe7, 0x8a, 0x3a, 0xec,
      0xdc},
     4,
     true},
    // Has no size slot. NULL ends it.
    {"CLS",
     {0xc6, 0x93, 0x33, 0x6e, 0x11, 0x21, 0xdf, 0x11, 0xa8, 0xc3, 0x68, 0xf3, 0x55, 0xd8, 0x95,
      0x93},
     4,
     false},
    {"CTXCHECK",
     {0x26, 0x3e, 0x88, 0x60, 0x7c, 0xd2, 0x61, 0x43, 0x92, 0xf6, 0xbb, 0xd5, 0x00, 0x6d, 0xfa,
      0x7e},
     15,
     true},
    {"INTEGRITY",
     {0xd4, 0x08, 0x20, 0x55, 0xbd, 0xe6, 0x70, 0x4b, 0x8d, 0x34, 0xba, 0x12, 0x3c, 0x66, 0xe1,
      0xf2},
     3,
     true},
    {"T2131",
     {0x21, 0x31, 0x8c, 0x60, 0x97, 0x14, 0x32, 0x48, 0x8c, 0xa6, 0x41, 0xff, 0x73, 0x24, 0xc8,
      0xf2},
     94,
     true},
    {"T6E16",
     {0x6e, 0x16, 0x3f, 0xbe, 0xb9, 0x58, 0x44, 0x4d, 0x83, 0x5c, 0xe1, 0x82, 0xaf, 0xf1, 0x99,
      0x1e},
     95,
     true},
    // The real size is unknown. Slot 4 is the only one ever called.
    {"T1734",
     {0x17, 0x34, 0xdc, 0x26, 0x80, 0x0d, 0x47, 0x45, 0x87, 0x26, 0xc0, 0xf1, 0xe7, 0xdd, 0x8b,
      0xca},
     64,
     true},
};

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
             kDescriptions[kTable].name, kSlot);
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
constinit std::uint32_t domain_flags[64] = {};

void tools_callback_flags(void** flags, std::size_t* count) {
  *flags = callback_flags;
  *count = kToolsCallbackFlags;
}

void tools_domain_flags(void** flags, std::size_t* count) {
  *flags = domain_flags;
  *count = std::size(domain_flags);
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
  return result != CUDA_SUCCESS ? result
                                : host()->stream_object(context, stream, per_thread, object);
}

CUresult stream_object_id(CUcontext context, void* object, std::uint64_t* id) {
  const CUresult result = resolve_context(context, &context);
  if (result != CUDA_SUCCESS) return result;
  unsigned long long value = 0;
  const CUresult asked = host()->stream_object_id(context, object, &value);
  if (asked == CUDA_SUCCESS) *id = value;
  return asked;
}

// The callback takes more than two arguments, in unknown ways. cuFFT uses these two.
using FunctionVisitor = void (*)(void* user, CUfunction function, void*, void*);

std::uint32_t visit_functions(CUcontext, CUmodule module, FunctionVisitor visit, void* user) {
  constexpr unsigned kFunctionsMax = 1U << 20;
  unsigned count = 0;
  if (ready() != CUDA_SUCCESS ||
      host()->module_functions(module, nullptr, 0, &count) != CUDA_SUCCESS || count == 0 ||
      count > kFunctionsMax)
    return 0;
  const std::unique_ptr<CUfunction[]> functions(new (std::nothrow) CUfunction[count]());
  unsigned written = count;
  if (functions == nullptr ||
      host()->module_functions(module, functions.get(), count, &written) != CUDA_SUCCESS)
    return 0;
  written = written < count ? written : count;
  for (unsigned i = 0; i < written && visit != nullptr; ++i)
    visit(user, functions[i], nullptr, nullptr);
  return written;
}

CUresult multiprocessor_groups(const std::uint8_t** groups, std::uint64_t* count) {
  GPURUN_RETURN_UNLESS_READY();
  if (host()->multiprocessor_groups == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  unsigned long long value = 0;
  const CUresult result = host()->multiprocessor_groups(groups, &value);
  if (result == CUDA_SUCCESS) *count = value;
  return result;
}

// The arrays ----------------------------------------------------------------------------------

// One slot: a function of any signature, or the table's size.
union Slot {
  void (*function)();
  std::size_t bytes;
};
static_assert(sizeof(Slot) == 8);

template <unsigned kTable>
constexpr unsigned kSlots = kDescriptions[kTable].slots;

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
  if (kDescriptions[kTable].has_size) table[0].bytes = kSlots<kTable> * sizeof(Slot);
  return table;
}

using Tables = std::array<const Slot*, kExportTableCount>;

Tables fill_tables() {
  Slot* cudart = new_table<kCudart>();
  set(cudart, 1, cudart_load);
  set(cudart, 2, cudart_primary_context);
  set(cudart, 6, cudart_load_with_options);
  set(cudart, 7, cudart_hint);
  set(cudart, 8, cudart_load_container);
  set(cudart, 12, cudart_nothing);

  Slot* callbacks = new_table<kToolsCallbacks>();
  set(callbacks, 2, tools_callback_flags);
  set(callbacks, 6, tools_domain_flags);

  Slot* thread_state = new_table<kToolsThreadState>();
  set(thread_state, 2, tools_current_context);

  Slot* storage = new_table<kContextLocalStorage>();
  set(storage, 0, storage_put);
  set(storage, 1, storage_delete);
  set(storage, 2, storage_get);
  storage[3].function = nullptr;

  Slot* check = new_table<kContextCheck>();
  set(check, 2, context_check);
  set(check, 3, context_check_mode);

  Slot* integrity = new_table<kIntegrity>();
  set(integrity, 1, integrity_value);

  Slot* t2131 = new_table<kT2131>();
  set(t2131, 4, context_id);
  set(t2131, 39, stream_object_id);
  set(t2131, 51, stream_object);

  Slot* t6e16 = new_table<kT6e16>();
  set(t6e16, 7, visit_functions);

  Slot* t1734 = new_table<kT1734>();
  set(t1734, 4, multiprocessor_groups);

  return {cudart, callbacks, thread_state, storage, check, integrity, t2131, t6e16, t1734};
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
  for (unsigned i = 0; i < kExportTableCount; ++i) {
    if (std::memcmp(kDescriptions[i].uuid, id->bytes, sizeof kDescriptions[i].uuid) != 0) continue;
    *table = tables()[i];
    return CUDA_SUCCESS;
  }
  log_refused(*id);
  *table = nullptr;
  return CUDA_ERROR_INVALID_VALUE;
}

const ExportTableDescription& export_table(unsigned index) noexcept { return kDescriptions[index]; }

}  // namespace gpurun::driver_abi
