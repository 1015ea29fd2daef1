// Worker start: one gpurun-worker process for each session, which gets its connections and one key.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/result.h"
#include "server/daemon/workers/worker_groups.h"
#include "server/daemon/workers/worker_uids.h"
#include "server/exchange/exchange_book.h"
#include "server/handover/device_ledgers.h"
#include "server/handover/worker_order.h"

namespace gpurun::server {

// A running worker. Used by one thread.
class Worker {
 public:
  Worker() = default;
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  // Kills it if it still runs, and reaps it.
  virtual ~Worker() = default;
  // Readable once the worker has ended.
  virtual int exit_fd() const noexcept = 0;
  virtual void kill() noexcept = 0;
  // Call once, after exit_fd() was readable. "exit status 1", "signal 11 (Segmentation fault)", or
  // empty when it ended well.
  virtual std::string how_it_failed() = 0;
  // Readable when the worker has written to its stderr. -1: we do not read its stderr.
  virtual int log_fd() const noexcept { return -1; }
  // Copies that to our stderr, marked as the worker's, up to a bound for the log.
  virtual void relay_log() {}
  // Readable when the worker wants to share something, or to get what another one shares. -1:
  // never.
  virtual int exchange_fd() const noexcept { return -1; }
  // For a worker without GPUs: sends it those that it must open. Call once. After a failure the
  // worker is unusable. `leased`: for a lease, not for an expected one.
  virtual Status assign(const std::vector<int>& /*devices*/, bool /*leased*/) {
    return Status(Code::kInternal, "it has its GPUs");
  }
  // For a prepared worker: gives it its session. On failure the order is unchanged.
  virtual Status hand_over(WorkerOrder& /*order*/) {
    return Status(Code::kInternal, "it was not prepared");
  }
  // For a worker with a session: gives it one more connection of that session. Never waits. On
  // failure the connection is unchanged.
  virtual Status join(ExtraBulkConnection& /*joining*/) {
    return Status(Code::kUnavailable, "this worker takes no more connections");
  }
  // Answers the request. `lease` is the worker's lease.
  virtual void serve_exchange(ExchangeRegistry& /*book*/, const protocol::Id& /*lease*/) {}
};

class WorkerSpawner {
 public:
  virtual ~WorkerSpawner() = default;
  // On failure the order is unchanged, so that the client can get the reason. Call only from a
  // thread that lives as long as the workers, because the kernel kills them when it ends.
  virtual Result<std::unique_ptr<Worker>> start(WorkerOrder& order) = 0;
  // Starts a worker with these devices before there is a session for it. It opens the driver
  // meanwhile. Call from the same thread as start().
  virtual Result<std::unique_ptr<Worker>> prepare(const std::vector<int>& /*devices*/) {
    return Status(Code::kUnavailable, "here workers start with their session");
  }
  // Starts a worker for any lease. With its driver mapped, it waits for assign(). Call from the
  // same thread as start().
  virtual Result<std::unique_ptr<Worker>> spare() {
    return Status(Code::kUnavailable, "here workers start with their lease");
  }
};

struct ProcessSettings {
  std::string worker_path;           // gpurun-worker.
  std::string driver_path;           // The driver library.
  std::shared_ptr<WorkerUids> uids;  // Gives each worker a user. Empty: the daemon's own.
  // Where workers keep code images beyond their sessions, and the bound in bytes for each user.
  // Empty: they do not.
  std::string images_path;
  std::uint64_t images_bytes = 0;
  // All devices of an emulated driver. Empty: each worker has devices of its own.
  std::shared_ptr<const DeviceLedgers> ledgers;
  // Workers give up everything that serving a session does not need
  // (server/worker/sandbox/confinement.h).
  bool confined = true;
  bool encrypted = false;  // Their sessions will probably be, so OpenSSL starts before they come.
  // Bytes of main memory that a worker may have. 0: for emulated devices, their memory and some
  // more, otherwise no limit.
  std::uint64_t worker_memory_bytes = 0;
  bool numa = false;  // Workers run on the NUMA node of their GPUs.
  // Ports of RDMA devices that their sessions may use, because the operator trusts the fabric.
  std::vector<std::string> trusted_fabrics;
  std::uint64_t service_level = 0, traffic_class = 0;  // Of their packets there.
  bool gpudirect = true;                    // These devices may read into the memory of GPUs.
  std::vector<std::uint64_t> device_bytes;  // Of emulated devices.
  std::shared_ptr<WorkerGroups> groups;     // Empty: no control groups.
};

// Main memory that a worker with these devices may have. 0: no limit.
std::uint64_t worker_memory(const ProcessSettings& settings, const std::vector<int>& devices);

// Starts gpurun-worker. The worker changes to its user itself, after it has opened the driver.
std::unique_ptr<WorkerSpawner> make_process_spawner(ProcessSettings settings);

struct DeviceFacts {
  std::string name;
  std::uint64_t memory_bytes = 0;
  bool emulated = false;
};

struct ServerFacts {
  std::vector<DeviceFacts> devices;
  // The active confinement of a worker, in the words of Confinement::in_force().
  std::string confinement;
};

// Starts a worker only to ask which GPUs its driver has. kUnavailable: the message is the worker's.
Result<ServerFacts> find_devices(const ProcessSettings& settings, Deadline deadline);

}  // namespace gpurun::server
