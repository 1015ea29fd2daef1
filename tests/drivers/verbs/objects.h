// The objects of the verbs double. Each begins with the structure that the program sees.
//
// Nic::mutex protects everything here, including the sockets. The NIC's thread takes it for each
// round.
#pragma once

#include <infiniband/verbs.h>

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/drivers/verbs/device_settings.h"
#include "tests/drivers/verbs/faults.h"
#include "tests/drivers/verbs/stream.h"

namespace gpurun::verbs_double {

using Clock = std::chrono::steady_clock;
using Bytes = std::vector<std::byte>;

struct Device {
  ibv_device visible{};  // First: programs hold its address.
  DeviceSettings settings;
  std::uint64_t guid = 0;
  std::vector<bool> port_down;
};

struct Context : verbs_context {
  Device* owner = nullptr;
  int async_writer = -1;
};

struct Pd : ibv_pd {
  unsigned users = 0;  // Memory regions and QPs.
};

struct Mr : ibv_mr {
  std::uint64_t first = 0;  // The address that keys refer to (iova).
  unsigned access = 0;
  bool is_dma_buf = false;  // `addr` is our own mapping.
};

struct Channel : ibv_comp_channel {
  int writer = -1;
};

struct Entry {
  ibv_wc wc{};
  std::uint32_t send_slots = 0;  // Freed when the program polls the entry.
  std::uint32_t receive_slots = 0;
};

struct Cq : ibv_cq {
  enum class Armed : std::uint8_t { kNo, kSolicited, kAny };
  std::uint64_t id = 0;  // Names the CQ in the channel's pipe.
  std::deque<Entry> entries;
  Armed armed = Armed::kNo;
  bool overrun = false;
  unsigned users = 0;
  std::uint32_t events = 0;        // Returned by ibv_get_cq_event.
  std::uint32_t async_events = 0;  // Returned by ibv_get_async_event.
};

struct SendRequest {
  std::uint64_t id = 0;
  RequestKind kind{};
  bool signaled = false;
  bool solicited = false;
  bool fence = false;
  bool is_inline = false;
  bool lost = false;  // A fault: no completion.
  std::optional<ibv_wc_status> planned;
  std::uint32_t immediate = 0;
  std::uint32_t key = 0;
  std::uint64_t address = 0;
  std::uint64_t length = 0;
  std::uint64_t sequence = 0;
  Clock::time_point leaves;  // Not before.
  std::vector<ibv_sge> pieces;
  Bytes inline_data;
};

struct ReceiveRequest {
  std::uint64_t id = 0;
  std::vector<ibv_sge> pieces;
};

struct Placement {
  std::uint32_t key = 0;
  std::uint64_t address = 0;
  std::uint32_t late = 0;  // Messages that must come before it.
  Bytes data;
};

// Data that a read has brought.
struct ReadPlacement {
  std::vector<ibv_sge> pieces;
  std::uint32_t late = 0;  // Completions that the program polls before it.
  Bytes data;
};

struct Message {
  Frame frame;
  Bytes payload;
};

struct Qp : ibv_qp {
  Context* owner = nullptr;
  ibv_qp_cap cap{};
  bool all_signaled = false;
  ibv_qp_attr set{};  // What ibv_modify_qp set.
  std::uint32_t async_events = 0;
  int listener = -1;     // Has the QP's number. It listens in each state.
  bool cut = false;      // A fault: nothing passes.
  bool stopped = false;  // A fault: it sends and reports nothing.

  // As a requester.
  enum class Link : std::uint8_t { kApart, kGreeting, kUp, kLost };
  Stream out;
  Link link = Link::kApart;
  Clock::time_point next_attempt;
  std::chrono::milliseconds pause{0};             // Between attempts.
  std::optional<Clock::time_point> lost_at;       // RETRY_EXC then.
  bool last_attempt = false;                      // Made at `lost_at`.
  std::optional<Clock::time_point> not_ready_at;  // RNR_RETRY_EXC then.
  std::deque<SendRequest> requests;
  std::size_t started = 0;  // The first of `requests` that the peer has not acknowledged.
  std::uint32_t reads_started = 0;
  std::uint64_t next_sequence = 0;
  std::uint32_t send_used = 0;
  std::uint32_t slots_owed = 0;  // Of requests that had no completion.
  std::deque<ReadPlacement> read_placements;

  // As a responder.
  Stream in;
  bool welcomed = false;
  bool served = false;   // A request came. The QP takes no other connection before a RESET.
  bool closing = false;  // A refusal leaves, then the connection closes.
  std::deque<ReceiveRequest> receives;
  std::uint32_t receive_used = 0;
  std::uint32_t receive_slots_owed = 0;
  std::optional<Message> waiting;  // For a posted receive.
  std::deque<Placement> placements;
  std::uint64_t placement_bytes = 0;
};

// Everything of the process. It is never destroyed, because programs may exit with open devices.
struct Nic {
  std::mutex mutex;
  std::condition_variable acknowledged;
  std::string fabric;
  std::string device_text;
  std::uint64_t timeout_percent = 100;
  std::vector<std::unique_ptr<Device>> devices;      // Of the current settings.
  std::vector<std::unique_ptr<Device>> old_devices;  // Programs may still hold their addresses.
  Faults faults;
  std::vector<Context*> contexts;
  std::map<std::uint32_t, Qp*> qps;
  std::map<std::uint64_t, Cq*> cqs;
  std::map<std::uint32_t, Mr*> regions;
  std::uint64_t registered = 0;  // Bytes.
  std::uint64_t next_cq = 1;
  std::mt19937 random{std::random_device{}()};
  std::thread thread;
  int waker = -1;                   // An eventfd.
  Nic* of_parent = nullptr;         // In a child of fork(): what the parent had.
  std::uint64_t thread_number = 0;  // A thread with another number ends.
};

Nic& nic();
using Lock = std::unique_lock<std::mutex>;

inline Device& device_of(ibv_context* context) {
  return *static_cast<Context*>(verbs_get_ctx(context))->owner;
}
// The GID at this index of a device, or nullptr.
const Gid* gid_of(const Device& device, std::uint32_t index);

}  // namespace gpurun::verbs_double
