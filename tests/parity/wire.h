// Wire: the whole path through the client library's wall and session, TCP, the worker's decoder,
// queues and dispatch, to the recording device. Client and worker are threads of the test's
// process.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "client/interpose/call/context.h"
#include "client/interpose/call/process.h"
#include "server/driver/cuda_driver.h"
#include "server/handlers/handlers.h"
#include "tests/parity/carrier.h"

namespace gpurun::parity {

// Used by one thread. At most one object in a process, because the client has one session.
class Wire final : public Carrier {
 public:
  Wire(const std::string& driver_path, std::string recording);
  ~Wire() override;

  std::uint64_t client_handle(driver_abi::HandleKind kind, std::size_t n) override;
  std::uint64_t driver_value(std::uint64_t client_handle, driver_abi::HandleKind kind) override;
  int forward(const driver_abi::Row& row, void* const* arguments) override;
  void* function(std::uint16_t opcode) const override { return driver_->function(opcode); }

 private:
  static std::uint64_t current_context();
  void start_worker(const std::string& driver_path);
  // A fence that queries the worker's handle table. See wire.cc. Returns the CUresult, and the
  // reply's word in `*answer`.
  int ask(std::uint64_t what, std::uint64_t handle, driver_abi::HandleKind kind,
          std::uint64_t value, std::uint64_t* answer);

  std::unique_ptr<server::CudaDriver> driver_;
  std::unique_ptr<server::HandlerState> state_;
  std::thread worker_;
  client::interpose::Process* process_ = nullptr;
  std::deque<client::interpose::Context> contexts_;  // Targets of the contexts' handles.
  std::map<std::pair<driver_abi::HandleKind, std::size_t>, std::uint64_t> handles_;
};

}  // namespace gpurun::parity
