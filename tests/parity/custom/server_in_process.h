// ServerInProcess: a whole server in the test's process. It is gpurund's daemon, with workers that
// are threads. A client library that the test opens attaches to it over TCP as to any other server.
#pragma once

#include <memory>
#include <string>
#include <thread>

#include "client/control/control_link.h"
#include "server/daemon/daemon.h"
#include "server/driver/cuda_driver.h"

namespace gpurun::parity {

class ServerInProcess {
 public:
  // Listens, and leases its one device to this process. Writes `session_file`, for GPURUN_SESSION.
  // Throws std::runtime_error.
  ServerInProcess(const std::string& driver_path, const std::string& session_file);
  // The client sees its server die, because the client's session lasts until the process ends.
  ~ServerInProcess();
  ServerInProcess(const ServerInProcess&) = delete;
  ServerInProcess& operator=(const ServerInProcess&) = delete;

 private:
  std::unique_ptr<server::WorkerSpawner> spawner_;
  std::unique_ptr<server::Daemon> daemon_;
  std::thread thread_;
  std::unique_ptr<client::ControlLink> link_;
};

}  // namespace gpurun::parity
