// RunSecret: a secret for one run of the daemon, in a file that its user's tools find by the port.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "base/bytes.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace gpurun::server {

class RunSecret {
 public:
  // Makes a file of mode 0600 in `folder` (as runtime_folder.h opens it), and replaces one that an
  // ended daemon has left. Only one of several daemons that start at once succeeds. kRefused: a
  // running daemon has a file for this port, on another address, or the folder is not this user's
  // alone. kDeadline: another process keeps the folder locked. Otherwise the error of the folder or
  // the file.
  static Result<std::unique_ptr<RunSecret>> create(const std::string& folder, std::uint16_t port);
  // Removes the file, unless another daemon has replaced it.
  ~RunSecret();
  RunSecret(const RunSecret&) = delete;
  RunSecret& operator=(const RunSecret&) = delete;

  const Bytes& bytes() const { return bytes_; }

 private:
  RunSecret(UniqueFd folder, std::string name, UniqueFd file, Bytes bytes)
      : folder_(std::move(folder)),
        name_(std::move(name)),
        file_(std::move(file)),
        bytes_(std::move(bytes)) {}

  const UniqueFd folder_;
  const std::string name_;
  const UniqueFd file_;  // Locked while its daemon lives.
  const Bytes bytes_;
};

}  // namespace gpurun::server
