// Known servers: the file is locked from the lookup to the write, so that one of two first meetings
// is the first.
#include "client/control/known_servers.h"

#include <fcntl.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <sstream>

#include "base/file_io.h"
#include "base/unique_fd.h"
#include "base/user_folders.h"

namespace gpurun::client {
namespace {

constexpr std::size_t kFileBytesMax = std::size_t{1} << 20;
constexpr const char* kPinned = "pinned";

Status check_file(int fd, const std::string& path, struct stat* about) {
  if (fstat(fd, about) != 0) return Status::from_errno(errno, path);
  if (S_ISREG(about->st_mode) && about->st_uid == geteuid() && (about->st_mode & 022) == 0) {
    return {};
  }
  return Status(Code::kRefused, path +
                                    " cannot be believed: it is no file that only this user "
                                    "may write; chmod 600 it, or remove it");
}

// A process that held the lock before may have replaced the file.
Result<UniqueFd> open_locked(const std::string& path) {
  static_cast<void>(make_folders(folder_of(path)));  // open() reports what is missing then.
  for (;;) {
    UniqueFd file(open(path.c_str(),
                       O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
    if (!file.valid()) return Status::from_errno(errno, path);
    while (flock(file.get(), LOCK_EX) != 0) {
      if (errno != EINTR) return Status::from_errno(errno, path);
    }
    struct stat about = {}, there = {};
    GPURUN_RETURN_IF_ERROR(check_file(file.get(), path, &about));
    const bool is_there = lstat(path.c_str(), &there) == 0;
    if (is_there && there.st_dev == about.st_dev && there.st_ino == about.st_ino) return file;
  }
}

Result<std::string> read_servers(int fd, const std::string& path) {
  return read_text(fd, kFileBytesMax, path, Code::kRefused);
}

Status changed(const std::string& place, const std::string& server, const std::string& known,
               const std::string& shown) {
  return Status(
      Code::kRefused,
      "the server " + server + " shows another key than it did before: " + shown + " now, " +
          known + " in " + place +
          ". Either the server was set up anew, or a third party intercepts the link. Ask its "
          "operator for its fingerprint (gpurund --fingerprint prints it); if that is the key that "
          "it shows now, remove that line and try again");
}

struct Entry {
  int number = 0;  // Of its line, from 1.
  std::string key;
  bool pinned = false;
};

// Returns the line of `server`. Host names ignore the case of letters.
std::optional<Entry> find_entry(const std::string& text, const std::string& server) {
  std::istringstream lines(text);
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::string name, known, mark;
    if (!(words >> name >> known) || strcasecmp(name.c_str(), server.c_str()) != 0) continue;
    return Entry{number, known, (words >> mark) && mark == kPinned};
  }
  return std::nullopt;
}

std::string place_of(const std::string& path, const Entry& entry) {
  return path + ":" + std::to_string(entry.number);
}

// Returns the entry if it has that key, or nullopt if the server was never met.
Result<std::optional<Entry>> look_up_in(const std::string& text, const std::string& path,
                                        const std::string& server, const std::string& shown) {
  std::optional<Entry> entry = find_entry(text, server);
  if (!entry || entry->key == shown) return entry;
  return changed(place_of(path, *entry), server, entry->key, shown);
}

Status append(int fd, const std::string& path, const std::string& text, const std::string& line) {
  const bool line_is_open = !text.empty() && text.back() != '\n';
  const Status written = write_whole(fd, (line_is_open ? "\n" : "") + line + "\n", path);
  // A part of a fingerprint would look like another server's at the next meeting.
  if (!written.ok()) static_cast<void>(!ftruncate(fd, static_cast<off_t>(text.size())));
  return written;
}

// Replaces the file as a whole. The caller holds the lock.
Status replace_line(const std::string& path, const std::string& text, int number,
                    const std::string& line) {
  std::istringstream lines(text);
  std::string changed_text, each;
  for (int at = 1; std::getline(lines, each); ++at) {
    changed_text += (at == number ? line : each) + "\n";
  }
  return replace_file(path, changed_text, {0600, Durability::kContent});
}

Result<Acquaintance> remember(const std::string& path, const std::string& server,
                              const transport::tls::Fingerprint& key, bool pin) {
  const Result<UniqueFd> file = open_locked(path);
  if (!file.ok()) return file.status();
  const Result<std::string> text = read_servers(file->get(), path);
  if (!text.ok()) return text.status();
  const std::string shown = transport::tls::to_string(key);
  const Result<std::optional<Entry>> met = look_up_in(*text, path, server, shown);
  if (!met.ok()) return met.status();
  const std::string line = server + " " + shown + (pin ? std::string(" ") + kPinned : "");
  if (!met->has_value()) {
    GPURUN_RETURN_IF_ERROR(append(file->get(), path, *text, line));
    return Acquaintance::kNew;
  }
  if (pin && !(*met)->pinned) {
    GPURUN_RETURN_IF_ERROR(replace_line(path, *text, (*met)->number, line));
  }
  return Acquaintance::kKnown;
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
  const Result<std::string> text = read_servers(file->get(), path);
  if (!text.ok()) return text.status();
  const Result<std::optional<Entry>> met =
      look_up_in(*text, path, server, transport::tls::to_string(key));
  if (!met.ok()) return met.status();
  return met->has_value() ? Acquaintance::kKnown : Acquaintance::kNew;
}

Result<Acquaintance> meet_server(const std::string& path, const std::string& server,
                                 const transport::tls::Fingerprint& key) {
  return remember(path, server, key, false);
}

Result<Acquaintance> pin_server(const std::string& path, const std::string& server,
                                const transport::tls::Fingerprint& key) {
  return remember(path, server, key, true);
}

// Takes no lock: a reader sees the file before a change or after it. A line that is being appended
// has its mark last.
Result<std::optional<PinnedKey>> pinned_key(const std::string& path, const std::string& server) {
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!file.valid() && (errno == ENOENT || errno == ENOTDIR)) return std::optional<PinnedKey>();
  if (!file.valid()) return Status::from_errno(errno, path);
  struct stat about = {};
  GPURUN_RETURN_IF_ERROR(check_file(file.get(), path, &about));
  const Result<std::string> text = read_servers(file.get(), path);
  if (!text.ok()) return text.status();
  const std::optional<Entry> entry = find_entry(*text, server);
  if (!entry || !entry->pinned) return std::optional<PinnedKey>();
  const std::string place = place_of(path, *entry);
  const auto key = transport::tls::parse_fingerprint(entry->key);
  if (!key.ok()) return Status(Code::kRefused, place + ": " + key.status().message());
  return std::optional<PinnedKey>(PinnedKey{*key, place});
}

}  // namespace gpurun::client
