// RdmaParts: the two ends of a connection over RDMA, on the verbs double (tests/drivers/verbs),
// before their carriers are on them.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tests/drivers/verbs/library_path.h"
#include "tests/drivers/verbs/verbs_double.h"
#include "transport/carrier/connection.h"
#include "transport/rdma/fabric.h"

namespace gpurun::transport::test {

// The library under its own name, so that the transport's dlopen() finds it.
class VerbsDouble {
 public:
  // Sets what the next device has. No device may be open.
  static void set(const std::string& devices, const std::string& faults = "") {
    setenv("VERBS_DOUBLE_FABRIC", ("test-" + std::to_string(getpid())).c_str(), 1);
    setenv("VERBS_DOUBLE_DEVICES", devices.c_str(), 1);
    setenv("VERBS_DOUBLE_FAULTS", faults.c_str(), 1);
    static_cast<void>(library());
  }
  static void inject(const std::string& faults) {
    EXPECT_EQ(find<decltype(&verbs_double_inject)>("verbs_double_inject")(faults.c_str()), 0);
  }
  static verbs_double_counts counts() {
    verbs_double_counts now{};
    find<decltype(&verbs_double_counters)>("verbs_double_counters")(&now);
    return now;
  }

 private:
  static void* library() {
    static void* const opened = dlopen(verbs_double_path, RTLD_NOW | RTLD_LOCAL);
    if (opened == nullptr) throw std::runtime_error(dlerror());
    return opened;
  }
  template <typename Function>
  static Function find(const char* name) {
    return reinterpret_cast<Function>(dlsym(library(), name));
  }
};

inline rdma::AllowedPorts all_ports() { return {{"*"}, {}}; }

inline Result<std::unique_ptr<rdma::Fabric>> any_fabric() {
  std::vector<rdma::Rejected> rejected;
  return rdma::open_fabric(all_ports(), &rejected);
}

struct RdmaEnd {
  std::unique_ptr<rdma::Fabric> fabric;  // Keeps its devices open.
  std::unique_ptr<carrier::Carrier> carrier;
};

// One end of the exchange: the connecting end offers first, and says at last that it is ready.
// `tries`: of opening the fabric, for a test with faults that may hit its probe.
inline Result<RdmaEnd> exchange(Connection& socket, bool connects, int tries = 1,
                                const rdma::EndPlace& place = {}) {
  const Deadline deadline = Deadline::in(std::chrono::seconds(20));
  RdmaEnd end;
  auto fabric = any_fabric();
  for (int tried = 1; !fabric.ok() && tried < tries; ++tried) fabric = any_fabric();
  if (!fabric.ok()) return fabric.status();
  end.fabric = *std::move(fabric);
  const Result<rdma::Gid> local = rdma::address_of(socket.fd());
  if (!local.ok()) return local.status();
  rdma::Offer theirs;
  const auto receive = [&] {
    return socket.receive(mutable_bytes(&theirs, sizeof theirs), sizeof theirs, deadline).status();
  };
  const auto send = [&](const rdma::Offer& ours) {
    const ByteView bytes = bytes_of(ours);
    return socket.send({&bytes, 1}, deadline);
  };
  if (!connects) GPURUN_RETURN_IF_ERROR(receive());
  auto made = end.fabric->make_end(*local, connects ? nullptr : &theirs, place);
  if (!made.ok()) return made.status();
  if (connects) {
    GPURUN_RETURN_IF_ERROR(send((*made)->offer()));
    GPURUN_RETURN_IF_ERROR(receive());
  }
  auto carrier = (*made)->connect(theirs);
  if (!carrier.ok()) return carrier.status();
  end.carrier = *std::move(carrier);
  std::byte ready{1};
  const ByteView word(&ready, 1);
  if (!connects) {
    GPURUN_RETURN_IF_ERROR(send((*made)->offer()));
    GPURUN_RETURN_IF_ERROR(socket.receive({&ready, 1}, 1, deadline).status());
    return end;
  }
  GPURUN_RETURN_IF_ERROR(socket.send({&word, 1}, deadline));
  return end;
}

// A socket of TCP with a carrier on it.
inline std::unique_ptr<carrier::CarriedConnection> carry_on(
    std::unique_ptr<Connection> socket, std::unique_ptr<carrier::Carrier> carrier,
    bool begins_by_carrier = true) {
  auto* const plain = dynamic_cast<sockets::SocketConnection*>(socket.release());
  carrier::CarrierOptions options;
  options.may_change = true;
  options.begins_by_carrier = begins_by_carrier;
  return carrier::carry(carrier::plain_socket(std::unique_ptr<sockets::SocketConnection>(plain)),
                        std::move(carrier), Capabilities{}, options);
}

}  // namespace gpurun::transport::test
