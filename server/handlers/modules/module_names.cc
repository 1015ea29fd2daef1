// Module names: binds handles that the client minted to objects in modules and libraries. The call
// is posted for objects that the client knows. Otherwise it is answered with a description.
#include "protocol/calls/module_calls.h"
#include "server/handlers/modules/kernel_facts.h"
#include "server/handlers/modules/module_state.h"
#include "server/handlers/modules/modules.h"
#include "server/handlers/state/handler_state.h"

namespace gpurun::server {
namespace {

using protocol::NameRequest;

template <typename T>
T as(DriverValue value) {
  return reinterpret_cast<T>(static_cast<std::uintptr_t>(value));
}

// A row that names an object.
struct Naming {
  const char* symbol;
  HandleKind owner;
  HandleKind named;
  int (*ask)(const CudaDriver& driver, void** named, DriverValue owner, const char* name);
};

const Naming kNamings[] = {
    {"cuModuleGetFunction", HandleKind::kModule, HandleKind::kFunction,
     [](const CudaDriver& driver, void** named, DriverValue owner, const char* name) -> int {
       return GPURUN_DRIVER(driver, cuModuleGetFunction, reinterpret_cast<CUfunction*>(named),
                            as<CUmodule>(owner), name);
     }},
    {"cuLibraryGetKernel", HandleKind::kLibrary, HandleKind::kKernel,
     [](const CudaDriver& driver, void** named, DriverValue owner, const char* name) -> int {
       return GPURUN_DRIVER(driver, cuLibraryGetKernel, reinterpret_cast<CUkernel*>(named),
                            as<CUlibrary>(owner), name);
     }},
    {"cuKernelGetFunction", HandleKind::kKernel, HandleKind::kFunction,
     [](const CudaDriver& driver, void** named, DriverValue owner, const char*) -> int {
       return GPURUN_DRIVER(driver, cuKernelGetFunction, reinterpret_cast<CUfunction*>(named),
                            as<CUkernel>(owner));
     }},
    {"cuLibraryGetModule", HandleKind::kLibrary, HandleKind::kModule,
     [](const CudaDriver& driver, void** named, DriverValue owner, const char*) -> int {
       return GPURUN_DRIVER(driver, cuLibraryGetModule, reinterpret_cast<CUmodule*>(named),
                            as<CUlibrary>(owner));
     }},
};

const Naming* naming_of(std::uint16_t opcode) {
  for (const Naming& naming : kNamings) {
    const driver_abi::Row* row = driver_abi::find_row(naming.symbol);
    if (row != nullptr && row->opcode == opcode) return &naming;
  }
  return nullptr;
}

int describe(Call& call, const Naming& naming, const NameRequest& request, void* named) {
  HandlerState& state = HandlerState::of(call);
  CUdevice device = 0;
  (void)GPURUN_DRIVER(state.driver(), cuCtxGetDevice, &device);  // No context: the first device.
  protocol::KernelDescription description;
  description.name = request.name;
  describe_kernel(state.driver(), {naming.named, named}, device, &description);
  const Bytes reply = protocol::pack(description);
  if (reply.size() > protocol::kReplyPayloadBytesMax) return kErrorInvalidValue;
  call.set_reply(reply);
  return 0;
}

int name(Call& call, const Naming& naming, const NameRequest& request) {
  HandlerState& state = HandlerState::of(call);
  const HandleTable::Found owner = call.handles().find(request.owner, naming.owner);
  if (owner.result != 0) return owner.result;
  void* named = nullptr;
  int result = naming.ask(state.driver(), &named, owner.value, request.name.c_str());
  if (result != 0) return result;
  result =
      call.handles().bind(request.handle, naming.named, reinterpret_cast<std::uintptr_t>(named));
  if (result != 0) return result;
  state.modules().own(request.owner, request.handle, naming.named);
  const bool described = naming.owner != HandleKind::kKernel && naming.named != HandleKind::kModule;
  return described && call.awaited() ? describe(call, naming, request, named) : 0;
}

CallOutcome run_name(Call& call) {
  const Naming* naming = naming_of(call.header().opcode);
  const Result<NameRequest> request = protocol::unpack_name_request(call.payload());
  if (naming == nullptr || !request.ok()) return CallOutcome::done(kErrorInvalidValue);
  const int result = name(call, *naming, *request);
  // The client has reported success to the program, so the use of the handle reports the failure.
  if (result != 0 && !call.awaited()) {
    call.set_created(request->handle);
    (void)call.handles().poison(request->handle, naming->named, result);
    // It is forgotten together with the owner that it would have had.
    HandlerState::of(call).modules().own(request->owner, request->handle, naming->named);
  }
  return CallOutcome::done(result);
}

}  // namespace

void add_module_name_handlers(Handlers& handlers) {
  for (const Naming& naming : kNamings) set_handler(handlers, naming.symbol, &run_name);
}

}  // namespace gpurun::server
