// SessionFolder: a folder with this run's session, for processes that do not see gpurun's memory
// files because they are in a container. The user mounts the folder and gpurun's installation
// there.
//
//   session       what GPURUN_SESSION names (client/attach/session_data.h)
//   worker-exits  the WorkerExitPage and what lies behind it
//   connect       the socket of the ConnectionBroker
//   environment   lines NAME=VALUE, as `podman run --env-file` reads them
//
// Each of them gives access to the lease. So the folder and the files belong to this user alone.
// The destructor removes the files, and the folder if this object made it. A killed gpurun leaves
// them behind. The server has ended that lease, and the next gpurun with this folder replaces them.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"

namespace gpurun::tools {

class SessionFolder {
 public:
  // Makes the folder (mode 0700, without its parents) if it does not exist.
  //   kInvalidArgument  it cannot be made or used; another user may open it; its path is too long
  //                     for a socket, or has a character that the lists of the loader or of an
  //                     environment file separate by. The message names it and the remedy.
  //   kRefused          another gpurun is using it
  static Result<std::unique_ptr<SessionFolder>> open(const std::string& word);
  SessionFolder(const SessionFolder&) = delete;
  SessionFolder& operator=(const SessionFolder&) = delete;
  ~SessionFolder();

  const std::string& path() const { return path_; }  // Absolute.
  std::string file(const char* name) const { return path_ + "/" + name; }

  static constexpr const char* kSession = "session";
  static constexpr const char* kWorkerExits = "worker-exits";
  static constexpr const char* kConnect = "connect";
  static constexpr const char* kEnvironment = "environment";

 private:
  SessionFolder(std::string path, UniqueFd lock, bool made)
      : path_(std::move(path)), lock_(std::move(lock)), made_(made) {}
  void remove_files() const;

  std::string path_;
  UniqueFd lock_;  // On the folder itself, which no other user can open.
  bool made_;
};

}  // namespace gpurun::tools
