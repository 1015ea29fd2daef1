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
// A file of one of these names that no gpurun has made is never removed.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace gpurun::tools {

class SessionFolder {
 public:
  // Makes the folder (mode 0700, without its parents) if it does not exist, and in it the socket
  // and the page.
  //   kInvalidArgument  it cannot be made or used; another user may open it; it has a file of a
  //   name
  //                     above that is not gpurun's; its path is too long for a socket, or has a
  //                     line break. The message names it and the remedy.
  //   kRefused          another gpurun is using it
  static Result<std::unique_ptr<SessionFolder>> open(const std::string& word);
  SessionFolder(const SessionFolder&) = delete;
  SessionFolder& operator=(const SessionFolder&) = delete;
  ~SessionFolder();

  const std::string& path() const { return path_; }  // Absolute.
  std::string session_path() const { return path_ + "/" + kSession; }
  // For the caller, once each.
  UniqueFd take_socket() { return std::move(socket_); }
  UniqueFd take_page() { return std::move(page_); }
  Status write_session(const std::string& text) const;
  // Each of `lines` is NAME=VALUE. kInvalidArgument: one has a line break.
  Status write_environment(const std::vector<std::string>& lines) const;

  static constexpr const char* kSession = "session";
  static constexpr const char* kWorkerExits = "worker-exits";
  static constexpr const char* kConnect = "connect";
  static constexpr const char* kEnvironment = "environment";

 private:
  SessionFolder(std::string path, UniqueFd folder, bool made)
      : path_(std::move(path)), folder_(std::move(folder)), made_(made) {}
  Status check_leftovers(const std::string& word) const;
  Status make_files();
  void remove_files() const;
  Status write(const char* name, const std::string& text) const;

  std::string path_;
  UniqueFd folder_;  // Locked (flock(2)). No other user can open the folder.
  bool made_;
  bool ours_ = false;  // The files in it are gpurun's.
  UniqueFd socket_;
  UniqueFd page_;
};

}  // namespace gpurun::tools
