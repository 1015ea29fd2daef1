// HandlerState: its construction, and the registration of handlers.
#include "server/handlers/state/handler_state.h"

#include <utility>

#include "driver_abi/row.h"

namespace gpurun::server {

HandlerState::HandlerState(const CudaDriver& driver, std::unique_ptr<Dispatch> dispatch,
                           Bytes snapshot, Objects objects)
    : driver_(driver),
      dispatch_(std::move(dispatch)),
      snapshot_(std::move(snapshot)),
      objects_(std::move(objects)) {}

HandlerState::~HandlerState() = default;

DeviceWindow* HandlerState::window(int device) {
  const auto index = static_cast<std::size_t>(device);
  return device >= 0 && index < objects_.windows.size() ? objects_.windows[index].get() : nullptr;
}

void set_handler(Handlers& handlers, const char* symbol, Handler handler) {
  const driver_abi::Row* row = driver_abi::find_row(symbol);
  if (row != nullptr && row->opcode < Handlers::kOpcodes) {
    handlers.by_opcode[row->opcode] = handler;
  }
}

}  // namespace gpurun::server
