// PrivateServer: a gpurund of this run alone, on a loopback port that the kernel chose, with a
// secret made for it. It ends with this process however that dies, and is in a session of its own,
// so that nothing typed on the terminal reaches it.
//
// One thread: the one that starts it must live as long as the server shall (prctl(2),
// PR_SET_PDEATHSIG).
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include "base/bytes.h"
#include "base/deadline.h"
#include "base/result.h"
#include "tools/gpurun/environment.h"
#include "tools/gpurun/options.h"
#include "tools/gpurun/places.h"

namespace gpurun::tools {

class PrivateServer {
 public:
  // `device` is what --device says; kAutomatic takes the real GPU where there is one. Returns once
  // the server listens. A server that does not start has said why on stderr itself.
  //   kUnavailable  gpurund is not where it should be, or it ended.
  //   kDeadline     it does neither.
  static Result<std::unique_ptr<PrivateServer>> start(const Places& places, Device device,
                                                      const Environment& user, Deadline deadline);
  // Asks it to end, and kills it when it does not within 5 s.
  ~PrivateServer();
  PrivateServer(const PrivateServer&) = delete;
  PrivateServer& operator=(const PrivateServer&) = delete;

  const std::string& address() const { return address_; }
  const Bytes& secret() const { return secret_; }
  pid_t process() const { return process_; }
  // The emulated device serves, or GPURUN_DRIVER's library.
  const std::string& device_name() const { return device_name_; }
  bool is_emulated() const { return is_emulated_; }

  // To be told by who reaps children: what process() has ended with. It is not waited for again.
  void ended() { process_ = -1; }

 private:
  PrivateServer(pid_t process, Bytes secret);

  pid_t process_;
  const Bytes secret_;
  std::string address_;
  std::string device_name_;
  bool is_emulated_ = false;
};

}  // namespace gpurun::tools
