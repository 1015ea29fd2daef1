// The path of a generated row's call without sockets: packed as the client packs, unpacked and
// issued to a driver as the worker does, and the reply back into the program's memory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "driver_abi/row.h"
#include "server/cuda_driver.h"
#include "server/dispatch.h"
#include "server/handles.h"

namespace gpurun::every_row {

// One thread. The driver is the recording device.
class Path {
 public:
  // `recording` is the file that the device writes.
  Path(const std::string& driver_path, std::string recording);

  // A live handle of `kind`: what the client calls it, and what the driver does.
  std::uint64_t client_handle(driver_abi::HandleKind kind, std::size_t n);
  std::uint64_t driver_handle(driver_abi::HandleKind kind, std::size_t n);
  // The driver's value behind a handle that the client holds; 0: none.
  std::uint64_t driver_value(std::uint64_t client_handle, driver_abi::HandleKind kind) const;

  // What the program would get. `row` may differ from the table's (a planted fault).
  int forward(const driver_abi::Row& row, void* const* arguments);
  // The same call by cuda.h's prototype.
  int direct(const driver_abi::Row& row, void* const* arguments) const;
  // Lines that the device wrote since the last time.
  std::string recorded();

 private:
  std::uint64_t fresh(driver_abi::HandleKind kind);

  std::unique_ptr<server::CudaDriver> driver_;
  std::unique_ptr<server::Dispatch> dispatch_;
  server::HandleTable handles_;
  const std::string recording_;
  std::streamoff read_ = 0;
  std::uint64_t next_index_ = 1;
};

}  // namespace gpurun::every_row
