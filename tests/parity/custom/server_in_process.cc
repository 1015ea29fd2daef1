// ServerInProcess: a daemon with workers that are threads.
#include "tests/parity/custom/server_in_process.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <chrono>
#include <fstream>
#include <stdexcept>

#include "protocol/control/rows_agreement.h"
#include "server/driver/driver_functions.h"
#include "server/handlers/handlers.h"
#include "server/worker/channels/worker.h"

namespace gpurun::parity {
namespace {

Deadline soon() { return Deadline::in(std::chrono::seconds(20)); }

template <typename Value>
Value expect(Result<Value> result) {
  if (!result.ok()) throw std::runtime_error(result.status().to_string());
  return *std::move(result);
}

// The work of gpurun-worker's main(), in a thread.
class ThreadWorker final : public server::Worker {
 public:
  ThreadWorker(const std::string& driver_path, server::WorkerOrder& order)
      : ended_(eventfd(0, EFD_CLOEXEC)),
        socket_(fcntl(order.connections[0]->fd(), F_DUPFD_CLOEXEC, 0)) {
    driver_ = expect(server::CudaDriver::open(driver_path));
    const Status initialized = driver_->initialize();
    if (!initialized.ok()) throw std::runtime_error(initialized.to_string());
    state_ = expect(server::make_handler_state(*driver_));
    server::WorkerOptions options;
    options.driver = expect(server::DriverFunctions::from_library(
        dlopen(driver_path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD)));
    options.handlers = server::make_handlers();
    options.handlers.needs_waits.set();  // Each wait of the program is a call of the driver.
    options.user = state_.get();
    server::WorkerChannels channels;
    channels.log = std::move(order.connections[0]);
    for (std::size_t i = 1; i < order.connections.size(); ++i) {
      channels.bulk.push_back(std::move(order.connections[i]));
    }
    const protocol::Features features = protocol::our_features(protocol::Sender::kServer);
    options.features = features.offered & order.features.offered;
    const ByteView snapshot = state_->snapshot();
    const protocol::Accept accept{protocol::kRelease,
                                  driver_->version(),
                                  Bytes(snapshot.begin(), snapshot.end()),
                                  protocol::rows_to_tell(driver_abi::rows(), order.rows),
                                  features,
                                  {},
                                  server::unserved_rows(*driver_, options.handlers)};
    const Status said = protocol::send_control(*channels.log, accept, order.key,
                                               protocol::Sender::kServer, 0, soon());
    if (!said.ok()) throw std::runtime_error(said.to_string());
    order.connections.clear();
    thread_ = std::thread([this, options, channels = std::move(channels)]() mutable {
      // The result does not matter: the client never says goodbye before its process ends.
      static_cast<void>(server::run_worker(options, std::move(channels)));
      eventfd_write(ended_.get(), 1);
    });
  }
  ~ThreadWorker() override {
    kill();
    if (thread_.joinable()) thread_.join();
  }
  int exit_fd() const noexcept override { return ended_.get(); }
  void kill() noexcept override { shutdown(socket_.get(), SHUT_RDWR); }
  std::string how_it_failed() override { return ""; }

 private:
  const UniqueFd ended_;
  const UniqueFd socket_;  // A copy of the log's socket, which stays open when the worker closes
                           // its own.
  std::unique_ptr<server::CudaDriver> driver_;
  std::unique_ptr<server::HandlerState> state_;
  std::thread thread_;
};

class ThreadSpawner final : public server::WorkerSpawner {
 public:
  explicit ThreadSpawner(std::string driver_path) : driver_path_(std::move(driver_path)) {}
  Result<std::unique_ptr<server::Worker>> start(server::WorkerOrder& order) override {
    try {
      return std::unique_ptr<server::Worker>(new ThreadWorker(driver_path_, order));
    } catch (const std::runtime_error& error) {
      return Status(Code::kUnavailable, error.what());
    }
  }

 private:
  const std::string driver_path_;
};

}  // namespace

ServerInProcess::ServerInProcess(const std::string& driver_path, const std::string& session_file)
    : spawner_(std::make_unique<ThreadSpawner>(driver_path)) {
  server::DaemonOptions options;
  options.secret = Bytes(16, std::byte{0x5a});
  options.devices = 1;
  const Bytes secret = options.secret;
  daemon_ = expect(server::Daemon::create(expect(transport::listen("tcp://127.0.0.1:0")),
                                          std::move(options), *spawner_));
  thread_ = std::thread([this] { static_cast<void>(daemon_->run()); });
  link_ = expect(client::ControlLink::connect(daemon_->address(), secret, soon()));
  const client::SessionData session = expect(link_->request_lease({}));
  std::ofstream(session_file) << client::serialise_session_data(session);
  chmod(session_file.c_str(), 0600);
}

ServerInProcess::~ServerInProcess() {
  if (daemon_ != nullptr) daemon_->stop();
  if (thread_.joinable()) thread_.join();
}

}  // namespace gpurun::parity
