// Connecting: from gpurun's environment variables to an authenticated connection.
#include <stdlib.h>
#include <sys/resource.h>

#include <algorithm>
#include <string_view>

#include "base/log.h"
#include "client/attach/session_data.h"
#include "client/interpose/call/host_memory_choice.h"
#include "client/interpose/call/process.h"
#include "client/interpose/call/windows_wanted.h"
#include "client/process/fork_guard.h"
#include "client/process/shared_memory_pressure.h"
#include "client/session/worker_exit_page.h"
#include "client/stats/recorder.h"

namespace gpurun::client::interpose {
namespace {

// Our descriptors lie above those that a program expects to get, and below its limit.
int first_descriptor() {
  constexpr rlim_t kHigh = 4'000;
  constexpr rlim_t kRoom = 64;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur <= 2 * kRoom) return 0;
  return static_cast<int>(std::min(limit.rlim_cur - kRoom, kHigh));
}

constexpr transport::rdma::ForkHooks kForkHooks = {
    &fork_guard::hold_off_forks, &fork_guard::let_forks, &fork_guard::watch, &fork_guard::forget};

// GPURUN_HOST_MEMORY.
void choose_host_memory(protocol::Features* features) {
  const HostMemoryChoice choice = host_memory_choice();
  const auto leave_out = [features](protocol::Feature feature) {
    features->offered &= ~protocol::feature_bit(feature);
  };
  const bool copied = choice == HostMemoryChoice::kCopied;
  const bool mirrored =
      choice == HostMemoryChoice::kMirrored || choice == HostMemoryChoice::kChecked;
  if (copied || mirrored) leave_out(protocol::Feature::kHostArena);
  if (copied) leave_out(protocol::Feature::kHostMirror);
}

// A server is configured, so a failure to reach it must not look like "no GPU".
Status somewhere(const Status& status) {
  if (status.code() != Code::kUnavailable) return status;
  const char* const hint =
      in_network_of_gpurun()
          ? ""
          : "; this program is in another network namespace than gpurun: start gpurun there, or "
            "give it a --session-folder and mount that folder here";
  return Status(Code::kPeerGone, status.message() + hint);
}

// Whether the attach may grant memory: this process wants windows, and can be asked to return
// memory. From this call on, processes that lack memory wait for this process's answer. A child in
// which CUDA does not work has a session for NVML alone.
bool may_be_given_memory() {
  return !ancestor_initialized() && windows_wanted() &&
         (shared_memory_board.load(std::memory_order_acquire) == nullptr ||
          join_memory_board() >= 0);
}

}  // namespace

Result<Attached> connect_from_environment() {
  const Result<SessionData> session = session_data_from_environment();
  if (!session.ok()) return session.status();
  AttachOptions options;
  options.fd_min = first_descriptor();
  options.forks = &kForkHooks;
  options.deaths = WorkerExitPage::open(session->deaths);
  if (options.deaths != nullptr) options.deaths->note_attach();
  const char* const transports = std::getenv(kTransportsVariable);
  Result<std::vector<TransportKind>> allowed =
      parse_transports(transports == nullptr ? "" : transports);
  if (!allowed.ok()) return allowed.status();
  options.transports = *std::move(allowed);
  const auto value = [](const char* variable) {
    const char* const set = std::getenv(variable);
    return std::string_view(set == nullptr ? "" : set);
  };
  Result<transport::rdma::AllowedPorts> fabrics =
      parse_allowed_ports(value(kTrustFabricVariable), value(kNetDevicesVariable));
  if (!fabrics.ok()) return fabrics.status();
  options.fabrics = *std::move(fabrics);
  const Result<transport::rdma::PacketClass> packets =
      parse_packet_class(value(kServiceLevelVariable), value(kTrafficClassVariable));
  if (!packets.ok()) return packets.status();
  options.fabrics.packets = *packets;
  const SessionOptions wanted = SessionOptions::from_environment();
  options.bulk_connections = std::max(wanted.bulk_connections, 1U);
  options.more_later = wanted.bulk_connections == 0;
  if (!wanted.packing) {
    options.features.offered &= ~(protocol::feature_bit(protocol::Feature::kPackedChunks) |
                                  protocol::feature_bit(protocol::Feature::kPackedRecords));
  }
  choose_host_memory(&options.features);
  if (wanted.statistics || recording_wanted()) {
    options.features.offered |= protocol::feature_bit(protocol::Feature::kCounting);
  }
  shared_memory_board.store(SharedMemoryPressure::open(session->deaths), std::memory_order_release);
  if (!may_be_given_memory()) {
    options.features.offered &= ~protocol::feature_bit(protocol::Feature::kFirstCredits);
  }
  Result<Attached> attached = attach(*session, options);
  if (!attached.ok()) return somewhere(attached.status());
  GPURUN_LOG(kInfo, "attached to %s over %s; copies' bytes have %zu connections",
             attached->channels.server_name.c_str(), attached->transport.c_str(),
             attached->channels.bulk.size());
  for (const transport::Rejected& each : attached->rejected) {
    GPURUN_LOG(kInfo, "not over %s: %s", each.name.c_str(), each.reason.c_str());
  }
  return attached;
}

}  // namespace gpurun::client::interpose
