// gpurun-worker: the process with one client process's CUDA contexts. gpurund starts it with the
// connections of one session on a socket. With --count it only prints how many GPUs the driver has.
#include <dlfcn.h>
#include <signal.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/thread_name.h"
#include "base/thread_stacks.h"
#include "base/unique_fd.h"
#include "driver_abi/row.h"
#include "protocol/control/control.h"
#include "protocol/control/rows_agreement.h"
#include "server/driver/cuda_driver.h"
#include "server/driver/direct_memory.h"
#include "server/driver/driver_functions.h"
#include "server/driver/snapshot.h"
#include "server/exchange/exchange_client.h"
#include "server/handlers/handlers.h"
#include "server/handlers/interprocess/interprocess.h"
#include "server/handlers/interprocess/shareable_handles.h"
#include "server/handlers/memory/device_windows.h"
#include "server/handlers/memory/host_arena.h"
#include "server/handlers/modules/module_state.h"
#include "server/handover/spawn_assignment.h"
#include "server/handover/spawn_hand_over.h"
#include "server/images/image_folder.h"
#include "server/images/image_keeper.h"
#include "server/worker/channels/carrier_changes.h"
#include "server/worker/channels/channel_security.h"
#include "server/worker/channels/extra_bulk_channels.h"
#include "server/worker/channels/worker.h"
#include "server/worker/channels/worker_fabric.h"
#include "server/worker/sandbox/confinement.h"
#include "server/worker/sandbox/numa_placement.h"
#include "server/worker/transport_reporter.h"
#include "transport/shm/connection.h"
#include "transport/sockets/connection.h"
#include "transport/tls/library.h"

namespace gpurun::server {
namespace {

Deadline handshake() { return Deadline::in(std::chrono::seconds(limits::kHandshakeDeadlineS)); }

Result<DriverFunctions> call_path_functions(const std::string& path) {
  // The library is mapped already. This call only finds it.
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  if (library == nullptr) return Status(Code::kUnavailable, path + " is not mapped");
  return DriverFunctions::from_library(library);
}

struct CommandLine {
  std::string driver;
  ConfinementOrder confinement;
  std::uint64_t memory_bytes = 0;  // For --count. A worker that serves gets it from its daemon.
  std::string images;              // Empty: no cache.
  std::uint64_t images_bytes = 0;
  int exchange = -1;                // Descriptor. -1: nothing is shared with other workers.
  bool tls = false;                 // The session is expected to be encrypted.
  std::vector<std::string> fabric;  // Ports of RDMA devices that the operator trusts.
  unsigned service_level = 0, traffic_class = 0;  // Of packets there.
  bool no_gpudirect = false;                      // RDMA devices read into no memory of GPUs.
  bool numa = false;                              // Run near the GPUs.
  // Its place among the arguments. nullptr: the worker was started for a lease.
  char* spare = nullptr;
};

// Prints the GPUs, and the confinement that a worker for an untrusted client would have.
Status count(const CommandLine& line) {
  Result<Confinement> confinement = Confinement::begin(line.confinement);
  if (!confinement.ok()) return confinement.status();
  const Result<std::unique_ptr<CudaDriver>> driver = CudaDriver::open(line.driver);
  if (!driver.ok()) return driver.status();
  GPURUN_RETURN_IF_ERROR((*driver)->initialize());
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
  GPURUN_RETURN_IF_ERROR(confinement->finish(emulated, line.memory_bytes));
  std::printf("confined %s\n", confinement->in_force().c_str());
  return Status();
}

Result<WorkerChannels> adopt(std::vector<UniqueFd> connections) {
  WorkerChannels channels;
  for (UniqueFd& fd : connections) {
    Result<std::unique_ptr<transport::Connection>> connection =
        transport::sockets::SocketConnection::adopt(std::move(fd), {.patient = true});
    if (!connection.ok()) return connection.status();
    if (channels.log == nullptr) {
      channels.log = *std::move(connection);
    } else {
      channels.bulk.push_back(*std::move(connection));
    }
  }
  return channels;
}

// A client on this machine offers memory for the bytes of its connections.
Status share_offered(WorkerChannels& channels, const HandOver& session) {
  const Deadline deadline = handshake();
  const transport::carrier::CarrierOptions options = carrier_options(session);
  GPURUN_RETURN_IF_ERROR(transport::shm::share_offered(channels.log, deadline, nullptr, options));
  for (auto& bulk : channels.bulk) {
    GPURUN_RETURN_IF_ERROR(transport::shm::share_offered(bulk, deadline, nullptr, options));
  }
  return {};
}

// Objects that the client left in the driver end with the process. No destructor of the driver
// runs, and calls that still block in it are not waited for.
[[noreturn]] void end_process(const Status& ended) {
  // Most programs just end, without a goodbye.
  const bool well = ended.ok() || ended.code() == Code::kPeerGone;
  if (!well) spdlog::error("{}", ended.to_string());
  std::fflush(nullptr);
  _exit(well ? 0 : 1);
}

// What a session needs of the driver. The pointers of `options` refer to the other members.
struct Started {
  std::unique_ptr<CudaDriver> driver;
  std::unique_ptr<HandlerState> state;
  WorkerOptions options;
};

// The duration that a variable of the operator holds, if it is a number of at most `most`.
template <typename Duration>
Duration duration_of(const char* variable, unsigned most, Duration otherwise) {
  const char* const text = std::getenv(variable);
  unsigned value = 0;
  if (text == nullptr) return otherwise;
  const char* const end = text + std::strlen(text);
  const auto [rest, error] = std::from_chars(text, end, value);
  if (error == std::errc() && rest == end && value <= most) return Duration(value);
  spdlog::warn("{}={:.40} is not a number of 0 to {}, and is ignored", variable, text, most);
  return otherwise;
}

// A driver that read CUDA_VISIBLE_DEVICES when it was mapped, before there was a lease, would show
// a client the GPUs of others.
Status check_gpus(const CudaDriver& driver, std::uint32_t leased) {
  int shown = 0;
  if (const int result = GPURUN_DRIVER(driver, cuDeviceGetCount, &shown); result != 0) {
    return Status::cuda(result, "cuDeviceGetCount");
  }
  if (shown >= 0 && static_cast<std::uint32_t>(shown) <= leased) return {};
  return Status(Code::kUnavailable, "the driver shows " + std::to_string(shown) + " GPUs of " +
                                        std::to_string(leased) +
                                        ": it ignores CUDA_VISIBLE_DEVICES");
}

Result<Started> start(const std::string& path, std::unique_ptr<CudaDriver> mapped,
                      std::uint32_t gpus) {
  Started started;
  started.driver = std::move(mapped);
  if (started.driver == nullptr) {
    Result<std::unique_ptr<CudaDriver>> driver = CudaDriver::open(path);
    if (!driver.ok()) return driver.status();
    started.driver = *std::move(driver);
  }
  GPURUN_RETURN_IF_ERROR(started.driver->initialize());
  GPURUN_RETURN_IF_ERROR(check_gpus(*started.driver, gpus));
  Result<DriverFunctions> functions = call_path_functions(path);
  if (!functions.ok()) return functions.status();
  Result<std::unique_ptr<HandlerState>> state = make_handler_state(*started.driver);
  if (!state.ok()) return state.status();
  started.state = *std::move(state);
  started.options.driver = *functions;
  started.options.handlers = make_handlers();
  started.options.user = started.state.get();
  started.options.ended = [state = started.state.get()](const Status& ended) {
    state->modules().images().settle();
    end_process(ended);
  };
  started.options.capture_stdout = true;
  WorkerOptions& options = started.options;
  options.stall_warning_after =
      duration_of("GPURUN_STALL_WARNING_MS", ~0U, options.stall_warning_after);
  options.spin = duration_of("GPURUN_SPIN_US", WorkerOptions::kSpinUsMax, options.spin);
  return started;
}

// Hashed only if the tables differ.
std::vector<protocol::RowHash> rows_to_tell(const Sha256Digest& theirs) {
  const auto ours = driver_abi::rows();
  if (protocol::known_rows_digest(ours) == theirs) return {};
  return protocol::rows_to_tell(ours, theirs);
}

// Memory that the client may hand out before it has requested any, which spares it a round trip.
// With several devices it is unknown which one the program will use.
std::optional<protocol::CreditGrant> first_credits(Started& started) {
  int devices = 0;
  protocol::CreditGrant grant;
  constexpr std::uint64_t kNeeded = protocol::feature_bit(protocol::Feature::kFirstCredits) |
                                    protocol::feature_bit(protocol::Feature::kDeviceWindows);
  if ((started.options.features & kNeeded) != kNeeded ||
      GPURUN_DRIVER(*started.driver, cuDeviceGetCount, &devices) != 0 || devices != 1) {
    return std::nullopt;
  }
  DeviceWindow* const window = started.state->window(0);
  if (window == nullptr || !window->grant_first(&grant)) return std::nullopt;
  return grant;
}

// The store that keeps images beyond the session. A keeper process does it where this process could
// not.
struct Images {
  std::unique_ptr<ImageKeeper> keeper;

  // Without the folder the session continues, and the client sends its images again.
  static Images start(const CommandLine& line) {
    if (line.images.empty() || (line.confinement.user == 0 && !line.confinement.full)) return {};
    Result<std::unique_ptr<ImageKeeper>> keeper =
        start_image_keeper(line.images, line.images_bytes);
    if (keeper.ok()) return {*std::move(keeper)};
    spdlog::warn("no image is kept: {}", keeper.status().message());
    return {};
  }
  // Opens the images of the session's user.
  std::unique_ptr<ImageCache> open(const CommandLine& line, const std::string& part) {
    if (keeper != nullptr) {
      keeper->keep(part);
      return std::move(keeper);
    }
    if (line.images.empty() || line.confinement.user != 0 || line.confinement.full) return nullptr;
    Result<std::unique_ptr<ImageFolder>> folder =
        ImageFolder::open(line.images + "/" + part, line.images_bytes);
    if (folder.ok()) return *std::move(folder);
    spdlog::warn("no image is kept: {}", folder.status().message());
    return nullptr;
  }
};

// All that can be done before there is a session. `status` is why no session is possible.
// `confined` is why no untrusted client may be served.
struct Readiness {
  Images images;
  std::unique_ptr<WorkerFabric> fabric;
  Result<Started> started = Status(Code::kUnavailable, "not started");
  Status confined;
  Status status;
  NumaPlacement placement;
  bool spare = false;
};

// Lets the process list show that the spare worker was taken.
static_assert(std::string_view(kSpareWord).size() == std::string_view(kTakenWord).size());
void say_taken(char* word) { std::memcpy(word, kTakenWord, std::strlen(kTakenWord)); }

// The next message of gpurund to this worker fails, so that gpurund uses another worker. Earlier
// messages can still be read.
void take_no_more() { shutdown(kHandOverFd, SHUT_RD); }

// The library and OpenSSL do not depend on the lease, but the devices do.
Result<Readiness> make_ready(const CommandLine& line) {
  Readiness ready;
  ready.spare = line.spare != nullptr;
  // First of all, so that the keeper gets nothing of the session or the driver.
  ready.images = Images::start(line);
  Result<Confinement> confinement = Confinement::begin(line.confinement);
  if (!confinement.ok()) return confinement.status();
  std::unique_ptr<CudaDriver> mapped;
  Status mapping;
  if (ready.spare) {
    Result<std::unique_ptr<CudaDriver>> driver = CudaDriver::open(line.driver);
    if (driver.ok()) {
      mapped = *std::move(driver);
    } else {
      mapping = driver.status();
      take_no_more();
    }
    if (line.tls) static_cast<void>(transport::tls::server_context(transport::tls::AuthMode::kKey));
  }
  Result<Assignment> assignment = receive_assignment(kHandOverFd);
  if (!assignment.ok()) return mapping.ok() ? assignment.status() : mapping;
  if (ready.spare && assignment->leased) say_taken(line.spare);
  obey(*assignment);
  if (mapping.ok()) {
    ready.started = start(line.driver, std::move(mapped), assignment->gpus);
  } else {
    ready.started = mapping;
  }
  // Driver and devices are open, or never will be. From here on the client is untrusted and decides
  // what runs.
  const bool emulated = ready.started.ok() && is_emulated(*ready.started->driver);
  const std::vector<PciDevice> gpus =
      ready.started.ok() ? gpu_places(*ready.started->driver) : std::vector<PciDevice>();
  if (line.numa) ready.placement = place_near(gpus, SystemFiles());
  ready.fabric = std::make_unique<WorkerFabric>(
      line.fabric, transport::rdma::PacketClass{static_cast<std::uint8_t>(line.service_level),
                                                static_cast<std::uint8_t>(line.traffic_class)});
  if (ready.started.ok() && ready.fabric->is_wanted() && !line.no_gpudirect) {
    ready.started->state->direct_memory().allow();
    ready.started->options.direct = &ready.started->state->direct_memory();
  }
  ready.confined =
      confinement->finish(emulated, assignment->memory_bytes,
                          [fabric = ready.fabric.get(), &gpus] { fabric->open(gpus); });
  ready.status = ready.started.ok() ? ready.confined : ready.started.status();
  // Otherwise the session's handshake would create it. It takes as long as all else here together,
  // so workers without TLS skip it.
  if (line.tls) static_cast<void>(transport::tls::server_context(transport::tls::AuthMode::kKey));
  return ready;
}

// The session may come much later. A spare worker that failed does not wait for it, because gpurund
// starts another. If gpurund has sent the session already, the client must receive the failure.
Result<HandOver> wait_for_session(const Readiness& ready) {
  if (ready.spare && !ready.status.ok()) {
    take_no_more();
    Result<HandOver> sent = receive_hand_over(kHandOverFd);
    return sent.ok() ? std::move(sent) : ready.status;
  }
  return receive_hand_over(kHandOverFd);
}

Status serve(const CommandLine& line) {
  Result<Readiness> ready = make_ready(line);
  if (!ready.ok()) return ready.status();
  Result<HandOver> hand_over = wait_for_session(*ready);
  if (!hand_over.ok()) return hand_over.status();
  if (line.spare != nullptr) say_taken(line.spare);
  ExtraBulkChannels late(UniqueFd(kHandOverFd), *hand_over);
  // Before the client is read, so that it cannot influence which user's images these are.
  std::unique_ptr<ImageCache> images = ready->images.open(line, hand_over->images);
  Result<WorkerChannels> channels = adopt(std::move(hand_over->connections));
  if (!channels.ok()) return channels.status();
  // The carrier of the log may change. The first answer goes over the original connection.
  transport::Connection* log = channels->log.get();
  const auto say = [&](const protocol::ControlMessage& words) {
    return protocol::send_control(*log, words, hand_over->key, protocol::Sender::kServer, 0,
                                  handshake());
  };
  // The first bytes of a client are read only in confinement, too.
  if (hand_over->encrypted && !ready->confined.ok()) return ready->status;
  ready->fabric->note(*channels);
  const Status secured = secure_channels(*hand_over, *channels, handshake());
  if (!secured.ok() && secured.code() != Code::kRefused) return secured;
  if (hand_over->encrypted) log = channels->log.get();
  if (!ready->status.ok() || !secured.ok()) {
    const Status& failure = ready->status.ok() ? secured : ready->status;
    const std::string why = ready->status.ok() ? secured.message() : failure.to_string();
    static_cast<void>(say(protocol::Refused{why}));
    return failure;
  }
  const bool local = transport::shm::is_local(*channels->log);
  if (const Status shared = share_offered(*channels, *hand_over); !shared.ok()) {
    static_cast<void>(say(protocol::Refused{shared.to_string()}));
    return shared;
  }
  Started& started = *ready->started;
  started.state->modules().images().set_cache(std::move(images));
  std::shared_ptr<ExchangeClient> exchange;
  if (line.exchange >= 0) {
    exchange = std::make_shared<ExchangeClient>(UniqueFd(line.exchange));
    started.state->interprocess().set_exchange(exchange);
    started.state->shareable_handles().set_exchange(exchange);
  }
  protocol::Features features = protocol::our_features(protocol::Sender::kServer);
  // Within the machine there is shared memory.
  if (ready->fabric->is_wanted() && !local) {
    features.offered |= protocol::feature_bit(protocol::Feature::kFabric);
  }
  const ByteView snapshot = started.state->snapshot();
  // gpurund has checked that each side has the features that the other requires.
  started.options.features = features.offered & hand_over->features.offered;
  if ((started.options.features & protocol::feature_bit(protocol::Feature::kLateBulk)) != 0) {
    started.options.late = &late;
  }
  if ((started.options.features & protocol::feature_bit(protocol::Feature::kHostArena)) != 0) {
    late.set_take_file([arena = &started.state->host_arena()](UniqueFd file) {
      return arena->adopt(std::move(file));
    });
  }
  constexpr std::uint64_t kHostMemory = protocol::feature_bit(protocol::Feature::kHostArena) |
                                        protocol::feature_bit(protocol::Feature::kHostMirror);
  if ((started.options.features & kHostMemory) != 0) {
    started.options.host_memory = &started.state->host_arena().memory();
  }
  GPURUN_RETURN_IF_ERROR(say(protocol::Accept{
      protocol::kRelease, started.driver->version(), Bytes(snapshot.begin(), snapshot.end()),
      rows_to_tell(hand_over->rows), features, first_credits(started),
      unserved_rows(*started.driver, started.options.handlers)}));
  std::vector<transport::rdma::Agreement> agreed;
  if ((started.options.features & protocol::feature_bit(protocol::Feature::kFabric)) != 0) {
    auto agreements = ready->fabric->answer(*channels, handshake());
    if (!agreements.ok()) return agreements.status();
    agreed = *std::move(agreements);
  }
  const auto reporter =
      std::make_shared<TransportReporter>(exchange, std::move(agreed), ready->placement.node);
  started.options.look_at_channels = [reporter](const WorkerChannels& all) {
    return reporter->look(all);
  };
  return run_worker(started.options, *std::move(channels));
}

}  // namespace
}  // namespace gpurun::server

namespace {

int run(int argc, char** argv) {
  // gpurund starts its file by a descriptor, and the kernel names the process after that.
  gpurun::name_this_thread("gpurun-worker");
  gpurun::server::CommandLine words;
  bool only_count = false;
  CLI::App app("gpurun-worker serves one client process; gpurund starts it.", "gpurun-worker");
  app.add_option("--driver", words.driver, "the CUDA driver library, by absolute path")->required();
  app.add_flag("--count", only_count, "print how many GPUs the driver has, and which, and end");
  app.add_option("--user", words.confinement.user,
                 "number of the user to become once the driver is open");
  app.add_flag("--confine", words.confinement.full,
               "give up all that serving the session does not need");
  app.add_option("--memory-bytes", words.memory_bytes,
                 "of --count: what a confined worker may have of its own; 0: any");
  app.add_option("--images", words.images, "folder that keeps code images beyond the session");
  app.add_option("--exchange", words.exchange,
                 "descriptor for what is shared with other workers of the lease");
  app.add_flag("--tls", words.tls, "sessions are expected to be encrypted");
  app.add_flag("--numa", words.numa, "run near the GPUs, on the processors of their NUMA node");
  app.add_option("--fabric", words.fabric, "port of an RDMA device that sessions may use");
  app.add_option("--service-level", words.service_level, "of packets of RDMA")
      ->check(CLI::Range(0U, gpurun::transport::rdma::kServiceLevelMax));
  app.add_option("--traffic-class", words.traffic_class, "of packets of RDMA")
      ->check(CLI::Range(0U, gpurun::transport::rdma::kTrafficClassMax));
  app.add_flag("--no-gpudirect", words.no_gpudirect, "RDMA devices read into no GPU memory");
  app.add_option("--images-bytes", words.images_bytes, "bytes that it may take");
  bool spare = false;
  app.add_flag(gpurun::server::kSpareWord, spare, "wait, the driver mapped, to be given GPUs");
  CLI11_PARSE(app, argc, argv);
  words.confinement.rdma = !words.fabric.empty();
  for (int index = 1; spare && index < argc; ++index) {
    if (std::strcmp(argv[index], gpurun::server::kSpareWord) == 0) words.spare = argv[index];
  }
  spdlog::set_default_logger(spdlog::stderr_color_mt("gpurun-worker"));
  spdlog::set_level(spdlog::level::warn);
  signal(SIGXFSZ, SIG_IGN);
  signal(SIGPIPE, SIG_IGN);  // gpurund stops reading our output when it is too much.
  const gpurun::Status status =
      only_count ? gpurun::server::count(words) : gpurun::server::serve(words);
  gpurun::server::end_process(status);
}

}  // namespace

int main(int argc, char** argv) { return gpurun::with_ordinary_stacks(&run, argc, argv); }
