// Path: the path of a generated row's call without sockets. The call is packed as the client packs
// it, and unpacked and issued to a driver as the worker does it. The reply returns into the
// program's memory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "driver_abi/row.h"
#include "server/driver/cuda_driver.h"
#include "server/worker/execution/dispatch.h"
#include "server/worker/execution/handles.h"
#include "tests/parity/carrier.h"

namespace gpurun::parity {

// Used by one thread. The driver is the recording device.
class Path final : public Carrier {
 public:
  Path(const std::string& driver_path, std::string recording);

  std::uint64_t client_handle(driver_abi::HandleKind kind, std::size_t n) override;
  std::uint64_t driver_value(std::uint64_t client_handle, driver_abi::HandleKind kind) override;
  // `row` may differ from the table's row (an injected fault).
  int forward(const driver_abi::Row& row, void* const* arguments) override;
  void* function(std::uint16_t opcode) const override { return driver_->function(opcode); }

 private:
  std::uint64_t fresh(driver_abi::HandleKind kind);

  std::unique_ptr<server::CudaDriver> driver_;
  std::unique_ptr<server::Dispatch> dispatch_;
  server::HandleTable handles_;
  std::uint64_t next_index_ = 1;
};

}  // namespace gpurun::parity
