// Names of kernels: a known kernel gets its handle in the client, and the worker learns it from a
// posted call.
#include <cstring>

#include "base/log.h"
#include "client/interpose/memory/memory_ranges.h"
#include "client/interpose/modules/load.h"
#include "client/stats/stats.h"

namespace gpurun::client::interpose::modules {
namespace {

using protocol::KernelDescription;
using protocol::NameRequest;
using protocol::Order;

// The site of a record that names something of `loaded`. Immediate if the worker has confirmed the
// load. Otherwise ordered after the load, which was posted.
CallSite name_site(const EntryContext& here, const Loaded& loaded, bool confirmed,
                   std::uint16_t row) {
  CallSite site;
  site.opcode = row;
  site.form = protocol::Form::kRaw;
  site.context = loaded.context;
  site.order = Order::kImmediate;
  if (!confirmed) {
    site.order = Order::kContext;
    site.flags = protocol::kFlagPassesStreams;
    // A library may have been loaded in another context than the one that uses it.
    if (site.context == 0 || site.context != here.lane->context()) site.context = 0;
  }
  return site;
}

// One round trip. The worker names and describes it. `earlier` gets an earlier call's failure.
int ask(const EntryContext& here, const CallSite& site, const NameRequest& request,
        KernelDescription* description, int* earlier) {
  const Bytes payload = protocol::pack(request);
  Reply reply;
  const int result = here.session().call(*here.lane, site, ByteView(payload), &reply);
  if (reply.result != 0 || reply.payload.empty()) {
    if (result != 0) return result;
    return reply.result != 0 ? reply.result : int{CUDA_ERROR_UNKNOWN};
  }
  auto unpacked = protocol::unpack_kernel(reply.payload);
  if (!unpacked.ok() || unpacked->name != request.name) {
    GPURUN_LOG(kError, "the worker answered a question about a kernel with nonsense");
    return CUDA_ERROR_UNKNOWN;
  }
  *description = std::move(*unpacked);
  *earlier = result;
  return 0;
}

// A trace names launched kernels even after they were unloaded.
void name_for_trace(const EntryContext& here, const Function& function) {
  Recorder* const recorder = here.session().stats().recorder();
  if (recorder != nullptr) recorder->name_kernel(function.handle, function.info.name);
}

int post(const EntryContext& here, const CallSite& site, const NameRequest& request) {
  const Bytes payload = protocol::pack(request);
  return here.session().post(*here.lane, site, ByteView(payload));
}

// An object that was named before. Returns the failure if the worker has reported one for it since.
template <typename Object>
int known_good(const EntryContext& here, Object* object, Object** out) {
  const int failure = here.check(object->handle, object->kind);
  if (failure == 0) *out = object;
  return failure;
}

}  // namespace

int get_function(EntryContext& here, Loaded* loaded, std::string_view name, Function** function) {
  if (name.size() > limits::kStringBytesMax) return CUDA_ERROR_NOT_FOUND;
  Registry& all = registry();
  std::shared_ptr<KernelTable> table;
  bool confirmed = false;
  {
    const std::lock_guard lock(all.mutex);
    const auto it = loaded->functions.find(name);
    if (it != loaded->functions.end()) return known_good(here, it->second, function);
    table = loaded->table;
    confirmed = loaded->confirmed;
  }
  const Kernel* kernel = table->find(name);
  if (kernel == nullptr && table->lacks(name)) return CUDA_ERROR_NOT_FOUND;

  const bool is_library = loaded->kind == HandleKind::kLibrary;
  const HandleKind kind = is_library ? HandleKind::kKernel : HandleKind::kFunction;
  const std::uint16_t row = is_library ? opcode::cuLibraryGetKernel : opcode::cuModuleGetFunction;
  const Handle handle = here.handles().mint(kind, loaded->context, nullptr);
  if (handle == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  const NameRequest request{loaded->handle, handle, std::string(name)};
  const CallSite site = name_site(here, *loaded, confirmed, row);
  int result = 0;
  int earlier = 0;
  if (kernel != nullptr && kernel->described) {
    result = post(here, site, request);
  } else {
    KernelDescription description;
    result = ask(here, site, request, &description, &earlier);
    if (result == 0) kernel = table->add(std::move(description));
  }
  if (result != 0) {
    here.handles().retire(handle);
    return result;
  }
  auto made = std::make_unique<Function>(*loaded, table, *kernel);
  made->handle = handle;
  made->kind = kind;
  made->context = loaded->context;
  name_for_trace(here, *made);
  const std::lock_guard lock(all.mutex);
  const auto [it, inserted] = loaded->functions.emplace(kernel->name, made.get());
  if (inserted) {
    here.handles().set_object(handle, made.release());
  } else {
    here.handles().retire(handle);  // Another thread was first. The second name stays unused.
  }
  *function = it->second;
  return earlier;
}

int count_kernels(EntryContext& here, Loaded* loaded, unsigned* count) {
  if (loaded->table->complete()) {
    *count = static_cast<unsigned>(loaded->table->kernels().size());
    return 0;
  }
  const std::uint16_t row = loaded->kind == HandleKind::kLibrary ? opcode::cuLibraryGetKernelCount
                                                                 : opcode::cuModuleGetFunctionCount;
  return call_row(here, row, name_site(here, *loaded, false, row), {}, count, loaded->handle);
}

int function_of_kernel(EntryContext& here, Function* kernel, Function** function) {
  Registry& all = registry();
  const Handle context = here.context->handle;
  {
    const std::lock_guard lock(all.mutex);
    const auto it = kernel->functions.find(context);
    if (it != kernel->functions.end()) return known_good(here, it->second, function);
  }
  auto made = std::make_unique<Function>(*kernel->owner, kernel->table, kernel->info);
  made->kind = HandleKind::kFunction;
  made->context = context;
  made->kernel = kernel;
  for (int id = 0; id < static_cast<int>(made->values.size()); ++id) {
    made->values[static_cast<unsigned>(id)] = kernel->attribute(id);
  }
  made->handle = here.handles().mint(HandleKind::kFunction, context, made.get());
  if (made->handle == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  CallSite site = here.passing_site();
  site.opcode = opcode::cuKernelGetFunction;
  site.form = protocol::Form::kRaw;
  name_for_trace(here, *made);
  if (const int result = post(here, site, {kernel->handle, made->handle, {}}); result != 0) {
    here.handles().retire(made->handle);
    return result;
  }
  const std::lock_guard lock(all.mutex);
  const auto [it, inserted] = kernel->functions.emplace(context, made.get());
  if (inserted) {
    made.release();
  } else {
    here.handles().retire(made->handle);
  }
  *function = it->second;
  return 0;
}

int module_of_library(EntryContext& here, Loaded* library, Loaded** module) {
  Registry& all = registry();
  const Handle context = here.context->handle;
  auto made = std::make_unique<Loaded>();
  {
    const std::lock_guard lock(all.mutex);
    const auto it = library->modules.find(context);
    if (it != library->modules.end()) return known_good(here, it->second, module);
    made->table = library->table;
  }
  made->kind = HandleKind::kModule;
  made->context = context;
  made->library = library;
  made->state = Loaded::State::kReady;
  made->handle = here.handles().mint(HandleKind::kModule, context, made.get());
  if (made->handle == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  CallSite site = here.passing_site();
  site.opcode = opcode::cuLibraryGetModule;
  site.form = protocol::Form::kRaw;
  if (const int result = post(here, site, {library->handle, made->handle, {}}); result != 0) {
    here.handles().retire(made->handle);
    return result;
  }
  const std::lock_guard lock(all.mutex);
  const auto [it, inserted] = library->modules.emplace(context, made.get());
  if (inserted) {
    made.release();
  } else {
    here.handles().retire(made->handle);
  }
  *module = it->second;
  return 0;
}

int get_variable(EntryContext& here, Loaded* loaded, const char* name, CUdeviceptr* address,
                 std::size_t* bytes) {
  Registry& all = registry();
  const std::pair<Handle, std::string> key{here.context->handle, name};
  Loaded::Variable variable;
  bool known = false;
  {
    const std::lock_guard lock(all.mutex);
    const auto it = loaded->variables.find(key);
    known = it != loaded->variables.end();
    if (known) variable = it->second;
  }
  if (!known) {
    const std::uint16_t row = loaded->kind == HandleKind::kLibrary ? opcode::cuLibraryGetGlobal
                                                                   : opcode::cuModuleGetGlobal_v2;
    CUdeviceptr* to = &variable.address;
    std::size_t* size = &variable.bytes;
    const int result = call_row(here, row, here.passing_site(), {}, to, size, loaded->handle, name);
    if (result != 0) return result;
    MemoryRange range;
    range.base = variable.address;
    range.bytes = variable.bytes;
    range.kind = MemoryKind::kModule;
    range.ordinal = here.context->ordinal;
    range.context = here.context->handle;
    range.owner = loaded->handle;
    // Fails when another handle of the module was asked before.
    if (variable.bytes != 0) static_cast<void>(add_range(range));
    const std::lock_guard lock(all.mutex);
    loaded->variables[key] = variable;
  }
  if (address != nullptr) *address = variable.address;
  if (bytes != nullptr) *bytes = variable.bytes;
  return 0;
}

namespace {

// One round trip. `earlier` gets an earlier call's failure.
int ask(const EntryContext& here, const CallSite& site, const NameRequest& request,
        protocol::ManagedVariable* variable, int* earlier) {
  const Bytes payload = protocol::pack(request);
  Reply reply;
  reply.result = -1;  // Not answered.
  const int result = here.session().call(*here.lane, site, ByteView(payload), &reply);
  if (reply.result != 0) return reply.result > 0 ? reply.result : result;
  if (reply.payload.size() != sizeof *variable) return CUDA_ERROR_UNKNOWN;
  std::memcpy(variable, reply.payload.data(), sizeof *variable);
  *earlier = result;
  return protocol::is_sound(*variable) ? 0 : int{CUDA_ERROR_UNKNOWN};
}

}  // namespace

int ask_for_managed_variable(const EntryContext& here, const Loaded& library, const char* name,
                             protocol::ManagedVariable* variable, int* earlier) {
  bool confirmed = false;
  {
    const std::lock_guard lock(registry().mutex);
    confirmed = library.confirmed;
  }
  const CallSite site = name_site(here, library, confirmed, opcode::cuLibraryGetManaged);
  return ask(here, site, {library.handle, 0, name}, variable, earlier);
}

}  // namespace gpurun::client::interpose::modules
