// Connects once. Plain static storage without constructors or destructors.
#include "client/interpose/process.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <bitset>
#include <cstdlib>
#include <new>
#include <string>
#include <utility>

#include "base/log.h"
#include "client/fork_guard.h"
#include "client/observation.h"
#include "client/stats.h"
#include "driver_abi/cuda_abi.h"
#include "protocol/features.h"
#include "protocol/limits.h"

namespace gpurun::client::interpose {
namespace {

std::atomic<Connector> g_connector{&connect_from_environment};
std::atomic<Process*> g_process{nullptr};
// By opcode; nullptr: nothing, which is the rule.
using Opcodes = std::bitset<limits::kRowsMax>;
std::atomic<const Opcodes*> g_lacking{nullptr};
std::atomic<int> g_failure{0};
std::atomic<pid_t> g_owner{0};  // The process that connected, or began to.
std::atomic<bool> g_initialized{false};
pthread_mutex_t g_connecting = PTHREAD_MUTEX_INITIALIZER;

int failed(const Status& status, int result) {
  GPURUN_LOG(kError, "no CUDA device can be used: %s", status.to_string().c_str());
  return result;
}

void set_lacking(const std::vector<std::uint16_t>& lacking) {
  if (lacking.empty()) return;
  auto* opcodes = new Opcodes;
  for (const std::uint16_t opcode : lacking) {
    if (opcode < opcodes->size()) opcodes->set(opcode);
  }
  g_lacking.store(opcodes, std::memory_order_release);
}

// Costs a process that traces a few round trips.
void begin_trace(const Process& process) {
  Recorder* const recorder = process.session->stats().recorder();
  if (recorder == nullptr) return;
  const char* const folder = std::getenv("GPURUN_TRACE");
  std::string no_worker =
      "the server (gpurun " + process.server_release + ") does not know how to record";
  std::vector<protocol::ClockSample> clocks;
  if ((process.features & protocol::feature_bit(protocol::Feature::kCounting)) != 0) {
    auto begun = begin_recording(*process.session);
    no_worker = begun.ok() ? "" : begun.status().message();
    if (begun.ok()) clocks = *std::move(begun);
  }
  recorder->begin(folder == nullptr ? "" : folder, std::move(clocks), std::move(no_worker));
}

// Under g_connecting.
int connect() {
  Result<Attached> attached = g_connector.load(std::memory_order_acquire)();
  if (!attached.ok() && attached.status().code() == Code::kUnavailable) {
    return failed(attached.status(), CUDA_ERROR_NO_DEVICE);
  }
  if (!attached.ok()) return failed(attached.status(), kResultPeerGone);
  Result<DeviceSnapshot> devices =
      DeviceSnapshot::parse(attached->snapshot, std::getenv("CUDA_VISIBLE_DEVICES"));
  if (!devices.ok()) return failed(devices.status(), kResultPeerGone);
  Result<DeviceSnapshot> all = DeviceSnapshot::parse(attached->snapshot, nullptr);
  if (!all.ok()) return failed(all.status(), kResultPeerGone);
  const std::string server = attached->channels.server_name;
  SessionOptions options = SessionOptions::from_environment();
  const auto knows = [&attached](protocol::Feature feature) {
    return (attached->features & protocol::feature_bit(feature)) != 0;
  };
  options.packed_chunks = knows(protocol::Feature::kPackedChunks);
  options.packed_records = knows(protocol::Feature::kPackedRecords);
  options.spread_copies = knows(protocol::Feature::kSpreadCopies);
  Result<std::unique_ptr<Session>> session = Session::start(std::move(attached->channels), options);
  if (!session.ok()) return failed(session.status(), kResultPeerGone);
  auto* process = new Process;
  process->session = session->release();
  process->devices = new DeviceSnapshot(std::move(*devices));
  process->all_devices = new DeviceSnapshot(std::move(*all));
  process->server = server;
  process->server_release = std::move(attached->server_release);
  process->attach_round_trips = attached->round_trips;
  process->transport = std::move(attached->transport);
  process->features = attached->features;
  begin_trace(*process);
  set_lacking(attached->lacking);
  process->first_credits = attached->credits;
  g_process.store(process, std::memory_order_release);
  return 0;
}

}  // namespace

void set_connector(Connector connector) noexcept {
  g_connector.store(connector, std::memory_order_release);
}

int connected(Process** process) noexcept {
  if (Process* found = g_process.load(std::memory_order_acquire); found != nullptr) {
    // A session has armed the guard, which costs a load where getpid() is a system call.
    if (fork_guard::forked()) return CUDA_ERROR_NOT_INITIALIZED;
    *process = found;
    return 0;
  }
  const pid_t owner = g_owner.load(std::memory_order_acquire);
  if (owner != 0 && owner != getpid()) return CUDA_ERROR_NOT_INITIALIZED;
  pthread_mutex_lock(&g_connecting);
  int result = g_failure.load(std::memory_order_relaxed);
  if (result == 0 && g_process.load(std::memory_order_relaxed) == nullptr) {
    g_owner.store(getpid(), std::memory_order_release);
    try {
      result = connect();
    } catch (const std::bad_alloc&) {
      result = CUDA_ERROR_OUT_OF_MEMORY;
    } catch (...) {
      result = CUDA_ERROR_UNKNOWN;
    }
    g_failure.store(result, std::memory_order_relaxed);
  }
  *process = g_process.load(std::memory_order_relaxed);
  pthread_mutex_unlock(&g_connecting);
  return result;
}

const Process* connected_already() noexcept {
  const Process* found = g_process.load(std::memory_order_acquire);
  return found == nullptr || fork_guard::forked() ? nullptr : found;
}

bool server_lacks(std::uint16_t opcode) noexcept {
  const Opcodes* lacking = g_lacking.load(std::memory_order_acquire);
  return lacking != nullptr && opcode < lacking->size() && (*lacking)[opcode];
}

void set_initialized() noexcept { g_initialized.store(true, std::memory_order_release); }

int ready(Process** process) noexcept {
  if (!g_initialized.load(std::memory_order_acquire)) return CUDA_ERROR_NOT_INITIALIZED;
  return connected(process);
}

}  // namespace gpurun::client::interpose
