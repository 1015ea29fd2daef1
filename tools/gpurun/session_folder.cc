// SessionFolder: all checks come before the lease is requested.
#include "tools/gpurun/session_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "client/attach/broker.h"

namespace gpurun::tools {

Result<std::unique_ptr<SessionFolder>> SessionFolder::open(const std::string& word) {
  const auto wrong = [&word](const std::string& why) {
    return Status(Code::kInvalidArgument, "--session-folder " + word + ": " + why);
  };
  const bool made = mkdir(word.c_str(), 0700) == 0;
  if (!made && errno != EEXIST) return wrong(std::strerror(errno));
  const std::unique_ptr<char, decltype(&std::free)> full(realpath(word.c_str(), nullptr),
                                                         &std::free);
  if (full == nullptr) return wrong(std::strerror(errno));
  std::string path(full.get());
  UniqueFd lock(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat facts = {};
  if (!lock.valid() || fstat(lock.get(), &facts) != 0) return wrong(std::strerror(errno));
  if (facts.st_uid != geteuid()) return wrong("it belongs to another user; name a folder of yours");
  if ((facts.st_mode & 077) != 0) {
    return wrong("other users may open it, and the lease with it; chmod 700 " + word);
  }
  if (path.size() + 1 + std::strlen(kConnect) > client::kSocketPathBytesMax) {
    return wrong("its path is too long for a socket in it; name one of at most " +
                 std::to_string(client::kSocketPathBytesMax - 1 - std::strlen(kConnect)) +
                 " bytes");
  }
  if (path.find('\n') != std::string::npos) return wrong("its name has a line break");
  if (flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    return Status(Code::kRefused, "--session-folder " + word +
                                      ": another gpurun is using it; name another folder for this "
                                      "run");
  }
  std::unique_ptr<SessionFolder> folder(new SessionFolder(std::move(path), std::move(lock), made));
  folder->remove_files();
  return folder;
}

SessionFolder::~SessionFolder() {
  remove_files();
  if (made_) rmdir(path_.c_str());
}

void SessionFolder::remove_files() const {
  for (const char* name : {kSession, kWorkerExits, kConnect, kEnvironment}) {
    unlinkat(lock_.get(), name, 0);
  }
}

}  // namespace gpurun::tools
