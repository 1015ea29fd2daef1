// SessionFolder: what can fail comes before the lease is requested. All files are made and removed
// relative to the locked folder, whatever its path names meanwhile.
#include "tools/gpurun/session_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/file_io.h"
#include "client/attach/broker.h"
#include "client/attach/session_data.h"
#include "client/session/worker_exit_page.h"

namespace gpurun::tools {
namespace {

constexpr const char* kNames[] = {SessionFolder::kSession, SessionFolder::kWorkerExits,
                                  SessionFolder::kConnect, SessionFolder::kEnvironment};

// True when `fd` is still what `path` names. Another gpurun removes the folder that it made.
bool is_at(const UniqueFd& fd, const std::string& path) {
  struct stat mine = {}, there = {};
  return fstat(fd.get(), &mine) == 0 && lstat(path.c_str(), &there) == 0 &&
         mine.st_dev == there.st_dev && mine.st_ino == there.st_ino;
}

}  // namespace

Result<std::unique_ptr<SessionFolder>> SessionFolder::open(const std::string& word) {
  const auto wrong = [&word](const std::string& why) {
    return Status(Code::kInvalidArgument, "--session-folder " + word + ": " + why);
  };
  const bool made = mkdir(word.c_str(), 0700) == 0;
  if (!made && errno != EEXIST) return wrong(std::strerror(errno));
  const std::unique_ptr<char, decltype(&std::free)> full(realpath(word.c_str(), nullptr),
                                                         &std::free);
  if (full == nullptr) return wrong(std::strerror(errno));
  UniqueFd fd(::open(full.get(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!fd.valid()) return wrong(std::strerror(errno));
  std::unique_ptr<SessionFolder> folder(new SessionFolder(full.get(), std::move(fd), made));
  struct stat facts = {};
  if (fstat(folder->folder_.get(), &facts) != 0) return wrong(std::strerror(errno));
  if (facts.st_uid != geteuid()) return wrong("it belongs to another user; name a folder of yours");
  if ((facts.st_mode & 077) != 0) {
    return wrong("other users may open it, and the lease with it; chmod 700 " + word);
  }
  const std::size_t room = client::kSocketPathBytesMax - 1 - std::strlen(kConnect);
  if (folder->path_.size() > room) {
    return wrong("its path is too long for a socket in it; name one of at most " +
                 std::to_string(room) + " bytes");
  }
  if (folder->path_.find('\n') != std::string::npos) return wrong("its name has a line break");
  const bool locked = flock(folder->folder_.get(), LOCK_EX | LOCK_NB) == 0;
  if (!locked && errno != EWOULDBLOCK) return wrong(std::strerror(errno));
  if (!locked || !is_at(folder->folder_, folder->path_)) {
    folder->made_ = false;
    return Status(Code::kRefused, "--session-folder " + word +
                                      ": another gpurun is using it; name another folder for this "
                                      "run");
  }
  GPURUN_RETURN_IF_ERROR(folder->check_leftovers(word));
  folder->ours_ = true;
  if (const Status status = folder->make_files(); !status.ok()) return wrong(status.message());
  return folder;
}

// A gpurun writes `session` before the others, so what it has left behind can be told from files
// of the same names.
Status SessionFolder::check_leftovers(const std::string& word) const {
  const UniqueFd session(openat(folder_.get(), kSession, O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (session.valid()) {
    const Result<std::string> text =
        read_text(session.get(), client::kSessionDataBytesMax, session_path());
    if (text.ok() && text->starts_with(client::kSessionFirstLine)) return {};
  }
  for (const char* name : kNames) {
    if (faccessat(folder_.get(), name, F_OK, AT_SYMLINK_NOFOLLOW) != 0) continue;
    return Status(Code::kInvalidArgument, "--session-folder " + word + ": its file " + name +
                                              " is not gpurun's; name an empty folder");
  }
  return {};
}

Status SessionFolder::make_files() {
  remove_files();
  GPURUN_RETURN_IF_ERROR(write_session(std::string(client::kSessionFirstLine) + "\n"));
  Result<UniqueFd> page =
      client::WorkerExitPage::create_at(folder_.get(), kWorkerExits, path_ + "/" + kWorkerExits);
  if (!page.ok()) return page.status();
  page_ = *std::move(page);
  Result<UniqueFd> socket =
      client::listen_as_broker(folder_.get(), kConnect, path_ + "/" + kConnect);
  if (!socket.ok()) return socket.status();
  socket_ = *std::move(socket);
  return {};
}

SessionFolder::~SessionFolder() {
  if (ours_) remove_files();
  if (made_) rmdir(path_.c_str());
}

// `session` last: without it the others would not count as gpurun's.
void SessionFolder::remove_files() const {
  for (const char* name : {kWorkerExits, kConnect, kEnvironment}) unlinkat(folder_.get(), name, 0);
  // What a killed gpurun was just writing (replace_file_in()).
  const int again = openat(folder_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* const entries = again < 0 ? nullptr : fdopendir(again);
  if (entries != nullptr) {
    while (const dirent* entry = readdir(entries)) {
      const std::string_view name = entry->d_name;
      if (name.starts_with("session.new-") || name.starts_with("environment.new-")) {
        unlinkat(folder_.get(), entry->d_name, 0);
      }
    }
    closedir(entries);
  } else if (again >= 0) {
    close(again);
  }
  unlinkat(folder_.get(), kSession, 0);
}

Status SessionFolder::write(const char* name, const std::string& text) const {
  return replace_file_in(folder_.get(), name, path_ + "/" + name,
                         byte_view(text.data(), text.size()));
}

Status SessionFolder::write_session(const std::string& text) const { return write(kSession, text); }

Status SessionFolder::write_environment(const std::vector<std::string>& lines) const {
  std::string text;
  for (const std::string& line : lines) {
    if (line.find('\n') != std::string::npos) {
      return Status(Code::kInvalidArgument,
                    "--session-folder: the variable " + line.substr(0, line.find('=')) +
                        " has a line break, which an environment file cannot have");
    }
    text += line + "\n";
  }
  return write(kEnvironment, text);
}

}  // namespace gpurun::tools
