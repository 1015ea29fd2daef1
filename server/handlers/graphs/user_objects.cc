// User objects: the driver's object for each object of the program. Its destructor notifies the
// client (protocol/calls/graph_host.h). The driver counts the references.
#include <cstring>
#include <memory>

#include "protocol/calls/graph_host.h"
#include "server/handlers/graphs/graph_calls.h"
#include "server/handlers/graphs/graph_hosts.h"
#include "server/handlers/state/handler_state.h"

namespace gpurun::server {
namespace {

// What the driver's object owns.
struct Owned {
  GraphHosts::OperationPtr operation;  // Its end notifies the client.
  std::uint64_t object = 0;            // 0: no handle is bound to it.
};

// For the driver, on any of its threads. No call names the object any more.
void end_object(void* data) {
  const std::unique_ptr<Owned> owned(static_cast<Owned*>(data));
  if (owned->object != 0) owned->operation->owner.end_user_object(owned->object);
}

int create(Call& call, const protocol::GraphUserObjectPayload& wanted) {
  HandlerState& state = HandlerState::of(call);
  GraphHosts& hosts = state.graph_hosts();
  hosts.set_executor(call.executor(), call.driver_context());
  GraphHosts::OperationPtr operation;
  int result = hosts.make_user_object(wanted.operation, &operation);
  if (result != 0) return result;
  auto owned = std::make_unique<Owned>(Owned{std::move(operation), wanted.object});
  CUuserObject made = nullptr;
  result =
      GPURUN_DRIVER(state.driver(), cuUserObjectCreate, &made, owned.get(), &end_object,
                    wanted.references, static_cast<unsigned>(CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
  if (result != 0) {
    // The program's object lives on, and only the program can end it.
    owned->operation->silent.store(true, std::memory_order_release);
    return result;
  }
  Owned* const kept = owned.release();  // Deleted with the object.
  result = call.handles().bind(wanted.object, HandleKind::kUserObject,
                               reinterpret_cast<std::uintptr_t>(made));
  if (result == 0) return 0;
  kept->object = 0;
  kept->operation->silent.store(true, std::memory_order_release);
  (void)GPURUN_DRIVER(state.driver(), cuUserObjectRelease, made, wanted.references);
  return result;
}

bool read(Call& call, protocol::GraphUserObjectPayload* wanted) {
  if (call.header().form != protocol::Form::kRaw || call.payload().size() != sizeof *wanted) {
    return false;
  }
  std::memcpy(wanted, call.payload().data(), sizeof *wanted);
  return wanted->object != 0 && wanted->operation != 0 && wanted->references != 0;
}

// The program has the object already, so its use reports the failure.
void fail(Call& call, std::uint64_t object, int result) {
  call.set_created(object);
  if (call.awaited()) return;
  (void)call.handles().poison(object, HandleKind::kUserObject, result);
}

CallOutcome run_create(Call& call) {
  protocol::GraphUserObjectPayload wanted;
  if (!read(call, &wanted)) return CallOutcome::done(kErrorInvalidValue);
  call.set_created(wanted.object);
  const int result = create(call, wanted);
  if (result != 0) fail(call, wanted.object, result);
  return CallOutcome::done(result);
}

}  // namespace

void refuse_user_object(Call& call, int result) {
  protocol::GraphUserObjectPayload wanted;
  if (read(call, &wanted)) fail(call, wanted.object, result);
}

void add_user_object_handlers(Handlers& handlers) {
  set_handler(handlers, "cuUserObjectCreate", &run_create);
}

}  // namespace gpurun::server
