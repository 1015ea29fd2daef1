// SpareWorkers: workers that are started before there is a lease for them, so that no lease waits
// for a process to start (docs/adr/0034). Each is given away once, and never comes back.
//
// They are replaced when nothing is urgent: some time after the last lease or session. When spare
// workers end by themselves, replacements start more and more rarely, so that a broken driver
// causes no loop of processes.
//
// One thread: the one that starts workers.
#pragma once

#include <poll.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/daemon/workers/spawn.h"

namespace gpurun::server {

enum class SpareLevel {
  kMapped,       // The driver's library is mapped. For any GPUs.
  kInitialised,  // After cuInit. For the GPUs that the next lease will probably get.
};

struct SpareOptions {
  static constexpr std::size_t kCountMax = 64;

  std::size_t count = 0;
  SpareLevel level = SpareLevel::kMapped;
  // Delay after a session has begun, because its first calls need the processors.
  std::chrono::milliseconds after_session{40};
  // Delay after a lease has begun, because its first session will begin soon.
  std::chrono::milliseconds after_lease{250};
  // Delay after there was no user, process or descriptor for a worker.
  std::chrono::milliseconds after_shortage{5000};
  // Delay after some have ended by themselves. Doubles each time in a row.
  std::chrono::milliseconds after_failure{200};
  std::chrono::milliseconds after_failure_max{60'000};
};

class SpareWorkers {
 public:
  using Clock = std::chrono::steady_clock;
  using Devices = std::vector<int>;

  SpareWorkers(WorkerSpawner& spawner, SpareOptions options)
      : spawner_(spawner), options_(options) {}

  // A worker that is ready for these devices, or will be soon. Null: there is no such worker.
  std::unique_ptr<Worker> take(const Devices& devices);
  // Sets the devices that the next lease will probably get. GPU 0 at first.
  void expect(Devices devices) { expected_ = std::move(devices); }
  // A lease or session has begun, which delays the next start.
  void lease_began() { put_off(options_.after_lease); }
  void session_began() { put_off(options_.after_session); }
  // Starts a missing worker, if it is time. At most one in each call.
  void refill();
  // Milliseconds until refill() has something to do. -1: nothing, in the present state.
  int milliseconds_to_refill() const;

  // watch() adds what poll() must wait for. Call look() when one of these is ready.
  void watch(std::vector<pollfd>* waited) const;
  void look();

  std::size_t count() const { return spares_.size(); }
  // Ends all of them, to free what they hold. Returns whether there were any.
  bool give_up();

 private:
  struct Spare {
    std::unique_ptr<Worker> worker;
    Devices devices;  // For kInitialised.
  };

  bool wants_more() const;
  void end(std::unique_ptr<Worker> worker);
  void put_off(std::chrono::milliseconds span);
  void failed(const std::string& what);
  void start_one();
  void not_started(const Status& why);

  WorkerSpawner& spawner_;
  const SpareOptions options_;
  Devices expected_{0};
  std::vector<Spare> spares_;  // The oldest first.
  // Killed workers. A process with a driver needs time to end, and no thread waits for it.
  std::vector<std::unique_ptr<Worker>> ending_;
  Clock::time_point due_ = Clock::now();
  // No start before this time: a new lease must not shorten the delay after a failure.
  Clock::time_point not_before_ = Clock::now();
  unsigned failures_ = 0;  // In a row.
};

}  // namespace gpurun::server
