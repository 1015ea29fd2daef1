// Stream: a non-blocking connection between two NICs of the verbs double, that carries frames.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/drivers/verbs/frame.h"

namespace gpurun::verbs_double {

// Moves a descriptor of the double, which a kernel would not have in the process, to a high number.
int set_aside(int descriptor);
// A listening socket for a QP of this number. -1 with EADDRINUSE: the fabric has
// such a QP already. `fabric` is VERBS_DOUBLE_FABRIC.
int bind_qp(const std::string& fabric, std::uint32_t number);
// Closes the socket, which may be -1, and removes its file, if it has one.
void unbind_qp(int descriptor, const std::string& fabric, std::uint32_t number);
// A connection, or -1 if nothing listens there or its backlog is full.
int connect_qp(const std::string& fabric, std::uint32_t number);

class Stream {
 public:
  enum class Received { kNothing, kFrame, kGone };

  Stream() = default;
  ~Stream() { close(); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  void open(int descriptor) noexcept;
  void close() noexcept;
  bool is_open() const noexcept { return descriptor_ >= 0; }
  int descriptor() const noexcept { return descriptor_; }

  void put(Frame frame, const std::vector<std::byte>& payload = {});
  std::size_t unsent() const noexcept { return out_.size() - sent_; }
  // Sends what the socket takes. Returns false if the connection is gone.
  bool flush();
  // kFrame: one frame and its payload. A wrong frame, or a payload over `payload_max`, is kGone.
  Received next(Frame& frame, std::vector<std::byte>& payload, std::uint64_t payload_max);

 private:
  Received fill(void* place, std::size_t size, std::size_t& filled);

  int descriptor_ = -1;
  std::vector<std::byte> out_;
  std::size_t sent_ = 0;
  Frame frame_;
  std::size_t frame_filled_ = 0;
  std::vector<std::byte> payload_;
  std::size_t payload_filled_ = 0;
};

}  // namespace gpurun::verbs_double
