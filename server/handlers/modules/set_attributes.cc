// Set attributes: rows that set and read the launch attributes of kernel nodes and streams. A value
// is a union, and the driver follows the pointers in it. So only the values of listed attributes
// without handles reach the driver, and only those leave the worker.
#include "driver_abi/row.h"
#include "driver_abi/semantics/launch_attributes.h"
#include "protocol/calls/call.h"
#include "server/handlers/modules/modules.h"
#include "server/handlers/state/handler_state.h"

namespace gpurun::server {
namespace {

// Of all these rows: handle, attribute, value.
constexpr std::size_t kAttribute = 1;

template <int check(std::uint32_t) noexcept>
int check_call(Call&, protocol::UnpackedCall& unpacked) {
  return check(static_cast<std::uint32_t>(unpacked.word(kAttribute)));
}

template <int check(std::uint32_t) noexcept>
CallOutcome run_checked(Call& call) {
  return HandlerState::of(call).dispatch().run(call, {&check_call<check>, nullptr});
}

}  // namespace

void add_attribute_handlers(Handlers& handlers) {
  for (const char* symbol : {"cuGraphKernelNodeGetAttribute", "cuGraphKernelNodeSetAttribute"}) {
    set_handler(handlers, symbol, &run_checked<driver_abi::check_node_attribute>);
  }
  for (const char* symbol : {"cuStreamGetAttribute", "cuStreamSetAttribute"}) {
    set_handler(handlers, symbol, &run_checked<driver_abi::check_stream_attribute>);
  }
}

}  // namespace gpurun::server
