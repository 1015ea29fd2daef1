// gpurun-worker: one client process's CUDA contexts. gpurund starts it with the connections of one
// session on a socket; with --count it only says how many GPUs the driver has.
#include <dlfcn.h>
#include <signal.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "base/unique_fd.h"
#include "driver_abi/row.h"
#include "protocol/control.h"
#include "protocol/rows_agreement.h"
#include "server/daemon/spawn_hand_over.h"
#include "server/driver/cuda_driver.h"
#include "server/driver/driver_functions.h"
#include "server/driver/snapshot.h"
#include "server/exchange/exchange_client.h"
#include "server/handlers/handlers.h"
#include "server/images/image_folder.h"
#include "server/images/image_keeper.h"
#include "server/worker/channel_security.h"
#include "server/worker/confinement.h"
#include "server/worker/worker.h"
#include "transport/tcp/connection.h"

namespace gpurun::server {
namespace {

Deadline handshake() { return Deadline::in(std::chrono::seconds(limits::kHandshakeDeadlineS)); }

Result<std::unique_ptr<CudaDriver>> start_driver(const std::string& path) {
  Result<std::unique_ptr<CudaDriver>> driver = CudaDriver::open(path);
  if (!driver.ok()) return driver;
  GPURUN_RETURN_IF_ERROR((*driver)->initialize());
  return driver;
}

Result<DriverFunctions> call_path_functions(const std::string& path) {
  // The library is mapped already; this only finds it.
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  if (library == nullptr) return Status(Code::kUnavailable, path + " is not mapped");
  return DriverFunctions::from_library(library);
}

// Says what there is, and what keeps a worker that serves a stranger where it is.
Status count(const std::string& path, const ConfinementOrder& order) {
  Result<Confinement> confinement = Confinement::begin(order);
  if (!confinement.ok()) return confinement.status();
  const Result<std::unique_ptr<CudaDriver>> driver = start_driver(path);
  if (!driver.ok()) return driver.status();
  int devices = 0;
  if (const int result = GPURUN_DRIVER(**driver, cuDeviceGetCount, &devices); result != 0) {
    return Status::cuda(result, "cuDeviceGetCount");
  }
  std::printf("%d\n", devices);
  for (int ordinal = 0; ordinal < devices; ++ordinal) {
    CUdevice device = 0;
    std::size_t bytes = 0;
    char name[128] = "";
    int result = GPURUN_DRIVER(**driver, cuDeviceGet, &device, ordinal);
    if (result == 0) result = GPURUN_DRIVER(**driver, cuDeviceTotalMem_v2, &bytes, device);
    if (result == 0) {
      result = GPURUN_DRIVER(**driver, cuDeviceGetName, name, int{sizeof name - 1}, device);
    }
    if (result != 0) return Status::cuda(result, "asking device " + std::to_string(ordinal));
    std::printf("%zu %s\n", bytes, name);
  }
  const bool emulated = is_emulated(**driver);
  if (emulated) std::printf("emulated\n");
  GPURUN_RETURN_IF_ERROR(confinement->finish(emulated));
  std::printf("confined %s\n", confinement->in_force().c_str());
  return Status();
}

Result<WorkerChannels> adopt(std::vector<UniqueFd> connections) {
  WorkerChannels channels;
  for (UniqueFd& fd : connections) {
    Result<std::unique_ptr<transport::Connection>> connection =
        transport::tcp::TcpConnection::adopt(std::move(fd), {});
    if (!connection.ok()) return connection.status();
    if (channels.log == nullptr) {
      channels.log = *std::move(connection);
    } else {
      channels.bulk.push_back(*std::move(connection));
    }
  }
  return channels;
}

// What the client left in the driver goes with the process: no destructor of the driver's, and no
// wait for calls that still block in it.
[[noreturn]] void end_process(const Status& ended) {
  // A client that just ends says no goodbye: that is how most programs end.
  const bool well = ended.ok() || ended.code() == Code::kPeerGone;
  if (!well) spdlog::error("{}", ended.to_string());
  std::fflush(nullptr);
  _exit(well ? 0 : 1);
}

// What a session needs of the driver; the pointers of `options` reach into the others.
struct Started {
  std::unique_ptr<CudaDriver> driver;
  std::unique_ptr<HandlerState> state;
  WorkerOptions options;
};

// GPURUN_STANDING_MS, where it is a number.
std::chrono::milliseconds standing_after(std::chrono::milliseconds otherwise) {
  const char* const text = std::getenv("GPURUN_STANDING_MS");
  unsigned value = 0;
  if (text == nullptr) return otherwise;
  const char* const end = text + std::strlen(text);
  const auto [rest, error] = std::from_chars(text, end, value);
  return error == std::errc() && rest == end ? std::chrono::milliseconds(value) : otherwise;
}

Result<Started> start(const std::string& path) {
  Started started;
  Result<std::unique_ptr<CudaDriver>> driver = start_driver(path);
  if (!driver.ok()) return driver.status();
  started.driver = *std::move(driver);
  Result<DriverFunctions> functions = call_path_functions(path);
  if (!functions.ok()) return functions.status();
  Result<std::unique_ptr<HandlerState>> state = HandlerState::create(*started.driver);
  if (!state.ok()) return state.status();
  started.state = *std::move(state);
  started.options.driver = *functions;
  started.options.handlers = make_handlers();
  started.options.user = started.state.get();
  started.options.ended = &end_process;
  started.options.capture_stdout = true;
  started.options.standing_after = standing_after(started.options.standing_after);
  return started;
}

struct CommandLine {
  std::string driver;
  ConfinementOrder confinement;
  std::string images;  // Empty: no cache.
  std::uint64_t images_bytes = 0;
  int exchange = -1;  // Descriptor; -1: nothing is shared with other workers.
};

// What a client is sent again is no reason to refuse it: without the folder it goes on.
std::unique_ptr<ImageCache> open_images(const CommandLine& words) {
  if (words.images.empty()) return nullptr;
  Result<std::unique_ptr<ImageFolder>> folder = ImageFolder::open(words.images, words.images_bytes);
  if (!folder.ok()) {
    spdlog::warn("no image is kept: {}", folder.status().message());
    return nullptr;
  }
  if (words.confinement.user == 0 && !words.confinement.full) return *std::move(folder);
  Result<std::unique_ptr<ImageCache>> keeper = start_image_keeper(*std::move(folder));
  if (keeper.ok()) return *std::move(keeper);
  spdlog::warn("no image is kept: {}", keeper.status().message());
  return nullptr;
}

Status serve(const CommandLine& line) {
  // First of all: the keeper shall have nothing of the session's or the driver's.
  std::unique_ptr<ImageCache> images = open_images(line);
  Result<Confinement> confinement = Confinement::begin(line.confinement);
  if (!confinement.ok()) return confinement.status();
  Result<HandOver> hand_over = receive_hand_over(kHandOverFd);
  if (!hand_over.ok()) return hand_over.status();
  UniqueFd(kHandOverFd).reset();
  Result<WorkerChannels> channels = adopt(std::move(hand_over->connections));
  if (!channels.ok()) return channels.status();
  const auto say = [&](const protocol::ControlMessage& words) {
    return protocol::send_control(*channels->log, words, hand_over->key, protocol::Sender::kServer,
                                  0, handshake());
  };
  Result<Started> started = start(line.driver);
  // Driver and devices are open; from here on a stranger decides what runs.
  const Status ready =
      started.ok() ? confinement->finish(is_emulated(*started->driver)) : started.status();
  // A stranger's first bytes are read in confinement, too.
  const Status secured = secure_channels(*hand_over, *channels, handshake());
  if (!secured.ok() && secured.code() != Code::kRefused) return secured;
  if (!ready.ok() || !secured.ok()) {
    static_cast<void>(say(protocol::Refused{ready.ok() ? secured.message() : ready.to_string()}));
    return ready.ok() ? secured : ready;
  }
  started->state->modules().images().set_cache(std::move(images));
  if (line.exchange >= 0) {
    started->state->interprocess().set_exchange(
        std::make_unique<ExchangeClient>(UniqueFd(line.exchange)));
  }
  const protocol::Features features = protocol::our_features(protocol::Sender::kServer);
  const ByteView snapshot = started->state->snapshot();
  GPURUN_RETURN_IF_ERROR(say(protocol::Accept{
      protocol::kRelease, started->driver->version(), Bytes(snapshot.begin(), snapshot.end()),
      protocol::rows_to_tell(driver_abi::rows(), hand_over->rows), features}));
  // gpurund has seen to it that nothing is missing which one side requires.
  started->options.features = features.offered & hand_over->features.offered;
  return run_worker(started->options, *std::move(channels));
}

}  // namespace
}  // namespace gpurun::server

int main(int argc, char** argv) {
  gpurun::server::CommandLine words;
  bool only_count = false;
  CLI::App app("gpurun-worker serves one client process; gpurund starts it.", "gpurun-worker");
  app.add_option("--driver", words.driver, "the CUDA driver library, by absolute path")->required();
  app.add_flag("--count", only_count, "print how many GPUs the driver has, and which, and end");
  app.add_option("--user", words.confinement.user,
                 "number of the user to become once the driver is open");
  app.add_flag("--confine", words.confinement.full,
               "give up all that serving the session does not need");
  app.add_option("--memory-bytes", words.confinement.memory_bytes,
                 "of its own that a confined worker may have; 0: any");
  app.add_option("--images", words.images, "folder that keeps code images beyond the session");
  app.add_option("--exchange", words.exchange,
                 "descriptor for what is shared with other workers of the lease");
  app.add_option("--images-bytes", words.images_bytes, "bytes that it may take");
  CLI11_PARSE(app, argc, argv);
  spdlog::set_default_logger(spdlog::stderr_color_mt("gpurun-worker"));
  spdlog::set_level(spdlog::level::warn);
  signal(SIGPIPE, SIG_IGN);  // gpurund stops reading what we say when it is too much.
  const gpurun::Status status = only_count ? gpurun::server::count(words.driver, words.confinement)
                                           : gpurun::server::serve(words);
  gpurun::server::end_process(status);
}
