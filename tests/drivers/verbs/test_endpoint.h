// Endpoint: a device, one QP and registered memory, for tests of the verbs double.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "tests/drivers/verbs/test_library.h"

namespace gpurun::verbs_double {

// Sets the settings of the library until it is destroyed. No endpoint may be open when it is made.
class Settings {
 public:
  explicit Settings(const std::string& devices = "rdma0", const std::string& faults = "");
  ~Settings();
  Settings(const Settings&) = delete;
  Settings& operator=(const Settings&) = delete;
};

// What a peer must know.
struct Numbers {
  std::uint32_t qp = 0;
  std::uint32_t psn = 0;
  std::uint32_t key = 0;
  std::uint16_t lid = 0;
  std::uint64_t address = 0;
  union ibv_gid gid {};
};

struct EndpointOptions {
  std::uint8_t timeout = 14;
  std::uint8_t retries = 6;
  std::uint8_t not_ready_retries = 7;
  std::uint8_t reads = 4;
  std::uint32_t depth = 64;
  std::uint32_t inline_bytes = 0;
  int completions = 256;
  std::uint32_t gid_index = 3;
  bool by_gid = true;  // False: by LID, as on InfiniBand.
  unsigned access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
};

class Endpoint {
 public:
  static constexpr std::size_t kMemory = 1U << 20;

  explicit Endpoint(const EndpointOptions& options = {});
  ~Endpoint();
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  Numbers numbers() const;
  // Each returns the result of ibv_modify_qp.
  int to_init();
  int to_ready_to_receive(const Numbers& peer);
  int to_ready_to_send();
  int to_state(ibv_qp_state state);
  void connect(const Numbers& peer);  // All three.

  // Posts with the memory from `offset`. Each returns the result of the post.
  int receive(std::uint64_t id, std::size_t offset, std::uint32_t length);
  int send(std::uint64_t id, std::size_t offset, std::uint32_t length,
           unsigned flags = IBV_SEND_SIGNALED, std::optional<std::uint32_t> immediate = {});
  int write(std::uint64_t id, std::size_t offset, std::uint32_t length, const Numbers& peer,
            std::size_t peer_offset, unsigned flags = IBV_SEND_SIGNALED,
            std::optional<std::uint32_t> immediate = {});
  int read(std::uint64_t id, std::size_t offset, std::uint32_t length, const Numbers& peer,
           std::size_t peer_offset);
  ibv_sge piece(std::size_t offset, std::uint32_t length) const;
  static int post(ibv_qp* qp, ibv_send_wr& request);

  // The next completion. Sleeps on the channel. Status GENERAL_ERR: it did not come for 20 s.
  ibv_wc next();
  // Whether the CQ is empty.
  bool quiet();
  // The next asynchronous event, acknowledged. Empty: it did not come for 20 s.
  std::optional<ibv_event_type> event();
  ibv_qp_state state() const;

  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  ibv_comp_channel* channel = nullptr;
  ibv_cq* cq = nullptr;
  ibv_qp* qp = nullptr;
  ibv_mr* region = nullptr;
  std::vector<unsigned char> memory;

 private:
  EndpointOptions options_;
};

// Connects both ways.
void connect(Endpoint& one, Endpoint& other);
// Waits until the descriptor is readable, at most 20 s.
bool readable(int descriptor, int milliseconds = 20'000);

}  // namespace gpurun::verbs_double
