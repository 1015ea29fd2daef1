// The file is locked from looking to writing, so that of two first meetings one is the first.
#include "client/known_servers.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <sstream>

#include "base/unique_fd.h"
#include "base/user_folders.h"
#include "base/write_whole.h"

namespace gpurun::client {
namespace {

constexpr std::size_t kFileBytesMax = std::size_t{1} << 20;

// The folders above the file, which only their user may enter.
void make_folders(const std::string& path) {
  for (std::size_t at = path.find('/', 1); at != std::string::npos; at = path.find('/', at + 1)) {
    mkdir(path.substr(0, at).c_str(), 0700);  // What is missing then is told by open().
  }
}

Result<UniqueFd> open_locked(const std::string& path) {
  make_folders(path);
  UniqueFd file(open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file.valid()) return Status::from_errno(errno, path);
  struct stat about = {};
  while (flock(file.get(), LOCK_EX) != 0) {
    if (errno != EINTR) return Status::from_errno(errno, path);
  }
  if (fstat(file.get(), &about) != 0) return Status::from_errno(errno, path);
  if (!S_ISREG(about.st_mode) || about.st_uid != geteuid() || (about.st_mode & 022) != 0) {
    return Status(Code::kRefused, path +
                                      " cannot be believed: it is no file that only this user "
                                      "may write; chmod 600 it, or remove it");
  }
  return file;
}

Result<std::string> read_all(int fd, const std::string& path) {
  std::string text(kFileBytesMax + 1, '\0');
  std::size_t bytes = 0;
  while (bytes < text.size()) {
    const ssize_t got =
        pread(fd, text.data() + bytes, text.size() - bytes, static_cast<off_t>(bytes));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Status::from_errno(errno, path);
    if (got == 0) break;
    bytes += static_cast<std::size_t>(got);
  }
  if (bytes > kFileBytesMax) return Status(Code::kRefused, path + " has more than 1 MiB");
  text.resize(bytes);
  return text;
}

Status changed(const std::string& place, const std::string& server, const std::string& known,
               const std::string& shown) {
  return Status(Code::kRefused,
                "the server " + server + " shows another key than it did before: " + shown +
                    " now, " + known + " in " + place +
                    ". Either it was set up anew, or somebody stands in between. Ask its operator "
                    "for its fingerprint (gpurund --fingerprint prints it); if it is the one that "
                    "it shows now, remove that line and try again");
}

Result<Acquaintance> look_up_in(const std::string& text, const std::string& path,
                                const std::string& server, const std::string& shown) {
  std::istringstream lines(text);
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::string name, known;
    if (!(words >> name >> known) || name != server) continue;
    if (known == shown) return Acquaintance::kKnown;
    return changed(path + ":" + std::to_string(number), server, known, shown);
  }
  return Acquaintance::kNew;
}

}  // namespace

std::string default_known_servers() {
  const std::string folder = xdg_folder("XDG_CONFIG_HOME", ".config");
  return folder.empty() ? folder : folder + "/known_servers";
}

Result<Acquaintance> look_up_server(const std::string& path, const std::string& server,
                                    const transport::tls::Fingerprint& key) {
  const Result<UniqueFd> file = open_locked(path);
  if (!file.ok()) return file.status();
  const Result<std::string> text = read_all(file->get(), path);
  if (!text.ok()) return text.status();
  return look_up_in(*text, path, server, transport::tls::to_string(key));
}

Result<Acquaintance> meet_server(const std::string& path, const std::string& server,
                                 const transport::tls::Fingerprint& key) {
  const Result<UniqueFd> file = open_locked(path);
  if (!file.ok()) return file.status();
  const Result<std::string> text = read_all(file->get(), path);
  if (!text.ok()) return text.status();
  const std::string shown = transport::tls::to_string(key);
  const Result<Acquaintance> met = look_up_in(*text, path, server, shown);
  if (!met.ok() || *met == Acquaintance::kKnown) return met;
  const bool line_is_open = !text->empty() && text->back() != '\n';
  const std::string entry = (line_is_open ? "\n" : "") + server + " " + shown + "\n";
  const Status written = write_whole(file->get(), entry, path);
  if (written.ok()) return Acquaintance::kNew;
  // Half a fingerprint would be another server's at the next meeting.
  static_cast<void>(!ftruncate(file->get(), static_cast<off_t>(text->size())));
  return written;
}

}  // namespace gpurun::client
