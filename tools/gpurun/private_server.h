// PrivateServer: a gpurund for this run only, on a loopback port that the kernel chose, with a
// secret of its own. It ends with this process, however that ends. It is in a session of its own,
// so that terminal keys do not reach it.
//
// One thread. The thread that starts it must live as long as the server (prctl(2),
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
  // `device` is the value of --device. kAutomatic uses the real GPU if there is one. Returns once
  // the server listens. A server that does not start has written the reason to stderr itself.
  //   kUnavailable  gpurund is not where it should be, or it ended.
  //   kDeadline     it neither listens nor ends.
  static Result<std::unique_ptr<PrivateServer>> start(const Places& places, Device device,
                                                      const Environment& user, Deadline deadline);
  // Asks it to end, and kills it after 5 s.
  ~PrivateServer();
  PrivateServer(const PrivateServer&) = delete;
  PrivateServer& operator=(const PrivateServer&) = delete;

  const std::string& address() const { return address_; }
  const Bytes& secret() const { return secret_; }
  pid_t process() const { return process_; }
  // The emulated device, or GPURUN_DRIVER's library.
  const std::string& device_name() const { return device_name_; }
  bool is_emulated() const { return is_emulated_; }

  // Call from the code that reaps children, after process() has been reaped. It is not waited for
  // again.
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
