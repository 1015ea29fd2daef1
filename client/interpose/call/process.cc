// Process: connects once. Plain static storage without constructors or destructors.
#include "client/interpose/call/process.h"

#include <atomic>
#include <bitset>
#include <cstdlib>
#include <mutex>
#include <new>
#include <string>
#include <utility>

#include "base/log.h"
#include "client/process/fork_guard.h"
#include "client/process/shared_memory_pressure.h"
#include "client/session/worker_statistics.h"
#include "client/stats/stats.h"
#include "driver_abi/cuda_abi.h"
#include "protocol/control/features.h"
#include "protocol/limits.h"

namespace gpurun::client::interpose {
namespace {

std::atomic<Connector> g_connector{&connect_from_environment};
std::atomic<Process*> g_process{nullptr};
// By opcode. nullptr, the usual case: nothing is missing.
using Opcodes = std::bitset<limits::kRowsMax>;
std::atomic<const Opcodes*> g_lacking{nullptr};
std::atomic<const Opcodes*> g_unserved{nullptr};
std::atomic<int> g_failure{0};
std::atomic<bool> g_initialized{false};
std::atomic<bool> g_ancestor_initialized{false};
std::atomic<int> g_driver_version{0};  // Of the last session, of this process or an ancestor.
std::mutex g_connecting;

int failed(const Status& status, int result) {
  GPURUN_LOG(kError, "no CUDA device can be used: %s", status.message().c_str());
  return result;
}

void keep_opcodes(const std::vector<std::uint16_t>& listed, std::atomic<const Opcodes*>& into) {
  if (listed.empty()) return;
  auto* opcodes = new Opcodes;
  for (const std::uint16_t opcode : listed) {
    if (opcode < opcodes->size()) opcodes->set(opcode);
  }
  into.store(opcodes, std::memory_order_release);
}

bool holds(const std::atomic<const Opcodes*>& kept, std::uint16_t opcode) {
  const Opcodes* opcodes = kept.load(std::memory_order_acquire);
  return opcodes != nullptr && opcode < opcodes->size() && (*opcodes)[opcode];
}

// Starts a trace. Costs a process that traces a few round trips.
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

// Runs in a forked child. The parent's session is abandoned, and its lock is made anew, because a
// thread that does not exist in the child may hold it.
void forget_parents_session() {
  if (g_initialized.exchange(false)) g_ancestor_initialized.store(true);
  g_process.store(nullptr);
  g_lacking.store(nullptr);
  g_unserved.store(nullptr);
  g_failure.store(0);
  // The place on the board holds the parent's process number.
  shared_memory_place.store(-1);
  shared_memory_board.store(nullptr);
  new (&g_connecting) std::mutex;
}

// Call it before the lock is taken. Otherwise a child could find the lock held.
Status guard_forks() {
  fork_guard::in_each_child(&forget_parents_session);
  return fork_guard::arm();
}

SharedPages shared_pages(bool host_memory, std::uint64_t features) {
  const auto knows = [features](protocol::Feature feature) {
    return (features & protocol::feature_bit(feature)) != 0;
  };
  SharedPages shared;
  shared.host_memory = host_memory;
  shared.mirrored = knows(protocol::Feature::kHostMirror);
  shared.descriptors = knows(protocol::Feature::kShareableHandles);
  return shared;
}

// g_connecting must be held.
int connect() {
  if (const Status guarded = guard_forks(); !guarded.ok()) return failed(guarded, kResultPeerGone);
  Result<Attached> attached = g_connector.load(std::memory_order_acquire)();
  if (!attached.ok() && attached.status().code() == Code::kUnavailable) {
    return failed(attached.status(), CUDA_ERROR_NO_DEVICE);
  }
  if (!attached.ok()) return failed(attached.status(), kResultPeerGone);
  const SharedPages shared =
      shared_pages(attached->channels.host_memory != nullptr, attached->features);
  Result<DeviceSnapshot> all = DeviceSnapshot::parse(attached->snapshot, nullptr, shared);
  if (!all.ok()) return failed(all.status(), kResultPeerGone);
  const std::string server = attached->channels.server_name;
  SessionOptions options = SessionOptions::from_environment();
  const auto knows = [&attached](protocol::Feature feature) {
    return (attached->features & protocol::feature_bit(feature)) != 0;
  };
  options.packed_chunks = knows(protocol::Feature::kPackedChunks);
  options.packed_records = knows(protocol::Feature::kPackedRecords);
  options.spread_copies = knows(protocol::Feature::kSpreadCopies);
  options.pulled_copies = knows(protocol::Feature::kPulledCopies);
  options.written_results = knows(protocol::Feature::kWrittenResults);
  Result<std::unique_ptr<Session>> session = Session::start(std::move(attached->channels), options);
  if (!session.ok()) return failed(session.status(), kResultPeerGone);
  auto* process = new Process;
  process->session = session->release();
  g_driver_version.store(all->driver_version(), std::memory_order_release);
  process->all_devices = new DeviceSnapshot(std::move(*all));
  process->snapshot = std::move(attached->snapshot);
  process->server = server;
  process->server_release = std::move(attached->server_release);
  process->driver_version = attached->driver_version;
  process->attach_round_trips = attached->round_trips;
  process->transport = std::move(attached->transport);
  process->socket_transport = std::move(attached->socket_transport);
  process->rejected = std::move(attached->rejected);
  process->features = attached->features;
  begin_trace(*process);
  keep_opcodes(attached->lacking, g_lacking);
  keep_opcodes(attached->unserved, g_unserved);
  process->first_credits = attached->credits;
  g_process.store(process, std::memory_order_release);
  return 0;
}

}  // namespace

void set_connector(Connector connector) noexcept {
  g_connector.store(connector, std::memory_order_release);
}

int connected(Process** process) noexcept {
  static_cast<void>(fork_guard::generation());  // In a new child this forgets the parent's session.
  if (Process* found = g_process.load(std::memory_order_acquire); found != nullptr) {
    *process = found;
    return 0;
  }
  (void)guard_forks();  // connect() reports a failure.
  const std::lock_guard<std::mutex> lock(g_connecting);
  int result = g_failure.load(std::memory_order_relaxed);
  if (result == 0 && g_process.load(std::memory_order_relaxed) == nullptr) {
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
  return result;
}

const Process* connected_already() noexcept {
  static_cast<void>(fork_guard::generation());
  return g_process.load(std::memory_order_acquire);
}

int last_driver_version() noexcept { return g_driver_version.load(std::memory_order_acquire); }

bool server_lacks(std::uint16_t opcode) noexcept { return holds(g_lacking, opcode); }

bool driver_lacks(std::uint16_t opcode) noexcept { return holds(g_unserved, opcode); }

int initialize(Process& process) noexcept try {
  const std::lock_guard<std::mutex> lock(g_connecting);
  if (process.devices == nullptr) {
    Result<DeviceSnapshot> visible = DeviceSnapshot::parse(
        process.snapshot, std::getenv("CUDA_VISIBLE_DEVICES"),
        shared_pages(process.session->may_offer_host_memory(), process.features));
    if (!visible.ok()) return failed(visible.status(), kResultPeerGone);
    process.devices = new DeviceSnapshot(std::move(*visible));
  }
  // With no device CUDA's runtime expects this result, not a count of 0 (measured).
  if (process.devices->device_count() == 0) return CUDA_ERROR_NO_DEVICE;
  const bool again = g_initialized.load(std::memory_order_relaxed);
  if (!again && !process.session->alive()) return kResultPeerGone;  // It was lost before cuInit.
  g_initialized.store(true, std::memory_order_release);
  return 0;
} catch (const std::bad_alloc&) {
  return CUDA_ERROR_OUT_OF_MEMORY;
}

bool ancestor_initialized() noexcept {
  static_cast<void>(fork_guard::generation());
  return g_ancestor_initialized.load(std::memory_order_acquire);
}

int ready(Process** process) noexcept {
  static_cast<void>(fork_guard::generation());
  if (!g_initialized.load(std::memory_order_acquire)) return CUDA_ERROR_NOT_INITIALIZED;
  *process = g_process.load(std::memory_order_acquire);  // cuInit has connected.
  return 0;
}

}  // namespace gpurun::client::interpose
