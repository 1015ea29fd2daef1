// Starting workers: one gpurun-worker process per session, given its connections and one key.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/result.h"
#include "protocol/features.h"
#include "protocol/proof.h"
#include "server/daemon/device_ledgers.h"
#include "server/daemon/users.h"
#include "server/daemon/worker_groups.h"
#include "server/daemon/worker_uids.h"
#include "server/exchange/exchange_book.h"
#include "transport/transport.h"

namespace gpurun::server {

// A session whose connections have all come and are all proved.
struct WorkerOrder {
  User user;
  protocol::Id session{};
  // The attach key, which tags the worker's answer; of an encrypted session the pre-shared key of
  // its handshakes (protocol/session_identity.h).
  protocol::Key key{};
  Sha256Digest rows{};  // protocol::rows_digest() of the client's table; unknown when encrypted.
  // What the client offers and requires; likewise.
  protocol::Features features;
  bool encrypted = false;
  protocol::Id lease{};
  protocol::Id ticket{};
  std::vector<int> devices;  // The driver's ordinals.
  // The log, then the bulk lanes. The first frame of each has been read, and not a byte more; of
  // encrypted ones nothing.
  std::vector<std::unique_ptr<transport::Connection>> connections;
};

// A bulk connection, proved, that joins a session whose worker runs.
struct JoiningConnection {
  protocol::Id lease{};
  protocol::Id session{};
  std::uint16_t index = 0;
  // The attach key; of an encrypted session nothing, for its worker has what it needs.
  protocol::Key key{};
  bool encrypted = false;
  std::unique_ptr<transport::Connection> connection;  // As one of a WorkerOrder.
};

// A running worker. Used by one thread.
class Worker {
 public:
  Worker() = default;
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  // Kills it if it still runs, and reaps it.
  virtual ~Worker() = default;
  // Readable once it has ended.
  virtual int exit_fd() const noexcept = 0;
  virtual void kill() noexcept = 0;
  // After exit_fd() was readable: "exit status 1", "signal 11 (Segmentation fault)"; empty when it
  // ended well. Once.
  virtual std::string how_it_failed() = 0;
  // Readable when it has said something on its stderr; -1: it does not say it to us.
  virtual int words_fd() const noexcept { return -1; }
  // Puts that on ours, as the worker's words; no more of a worker than a log may take.
  virtual void pass_on_words() {}
  // Readable when it wants to share something, or to have what another one shares; -1: it never
  // does.
  virtual int exchange_fd() const noexcept { return -1; }
  // Of one that has no GPUs yet: tells it which it shall open. Once; a failure ends its use.
  // `leased`: for a lease, not for one that is expected.
  virtual Status assign(const std::vector<int>& /*devices*/, bool /*leased*/) {
    return Status(Code::kInternal, "it has its GPUs");
  }
  // Of one that was prepared: gives it its session. On failure the order is untouched.
  virtual Status hand_over(WorkerOrder& /*order*/) {
    return Status(Code::kInternal, "it was not prepared");
  }
  // Of one that has its session: gives it one more connection of it; never waits. On failure the
  // connection is untouched.
  virtual Status join(JoiningConnection& /*joining*/) {
    return Status(Code::kUnavailable, "this worker takes no more connections");
  }
  // Answers it. `lease`: whose worker it is.
  virtual void serve_exchange(ExchangeBook& /*book*/, const protocol::Id& /*lease*/) {}
};

class WorkerSpawner {
 public:
  virtual ~WorkerSpawner() = default;
  // On failure the order is untouched, so that the client can be told. Only from the thread that
  // lives as long as the workers shall: the kernel kills them when it ends.
  virtual Result<std::unique_ptr<Worker>> start(WorkerOrder& order) = 0;
  // A worker with these devices before there is a session for it: it opens the driver meanwhile.
  // From the same thread.
  virtual Result<std::unique_ptr<Worker>> prepare(const std::vector<int>& /*devices*/) {
    return Status(Code::kUnavailable, "here workers start with their session");
  }
  // A worker for whichever lease comes: it waits, with the driver mapped, to be assigned its
  // devices. From the same thread.
  virtual Result<std::unique_ptr<Worker>> spare() {
    return Status(Code::kUnavailable, "here workers start with their lease");
  }
};

struct ProcessSettings {
  std::string worker_path;           // gpurun-worker.
  std::string driver_path;           // The driver library.
  std::shared_ptr<WorkerUids> uids;  // A user for each worker; empty: the daemon's own.
  // Where workers keep code images beyond their sessions, and how many bytes of each user's; empty:
  // they do not.
  std::string images_path;
  std::uint64_t images_bytes = 0;
  // Of an emulated driver's devices, all of them; empty: each worker has devices of its own.
  std::shared_ptr<const DeviceLedgers> ledgers;
  // Workers give up all that serving a session does not need (server/worker/confinement.h).
  bool confined = true;
  bool encrypted = false;  // Their sessions are expected to be: OpenSSL starts before they come.
  // Of main memory, that one of them may have; 0: what its devices take when they are emulated and
  // something beside, else any.
  std::uint64_t worker_memory_bytes = 0;
  std::vector<std::uint64_t> device_bytes;  // Of emulated devices.
  std::shared_ptr<WorkerGroups> groups;     // Empty: no control groups.
};

// The word of its command line by which a spare worker can be told from others, and what stands
// there instead once it is somebody's.
inline constexpr const char* kSpareWord = "--spare";
inline constexpr const char* kTakenWord = "--taken";

// The folder of that user's images in ProcessSettings::images_path.
std::string images_of(const User& user);
// What a worker with these devices may have of main memory; 0: any.
std::uint64_t worker_memory(const ProcessSettings& settings, const std::vector<int>& devices);

// Starts gpurun-worker. The worker itself changes to its user, once it has opened the driver.
std::unique_ptr<WorkerSpawner> make_process_spawner(ProcessSettings settings);

struct DeviceFacts {
  std::string name;
  std::uint64_t memory_bytes = 0;
  bool emulated = false;
};

struct ServerFacts {
  std::vector<DeviceFacts> devices;
  // What is in force around a worker, in the words of Confinement::in_force().
  std::string confinement;
};

// Starts the worker only to ask which GPUs its driver has. kUnavailable: its own words.
Result<ServerFacts> find_devices(const ProcessSettings& settings, Deadline deadline);

}  // namespace gpurun::server
