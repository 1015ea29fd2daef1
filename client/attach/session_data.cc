// SessionData's format: a first line "gpurun session 1", then "name value" lines in any order.
// Binary values are in hexadecimal. An unknown name is skipped, so that a newer gpurun may add one.
#include "client/attach/session_data.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <charconv>
#include <utility>

#include "base/file_io.h"
#include "base/hex.h"
#include "base/unique_fd.h"
#include "protocol/control/local_address.h"

namespace gpurun::client {
namespace {

constexpr std::size_t kEntryBytesMax = 8192;

template <typename Array>
void append_hex(std::string& text, const char* name, const Array& bytes) {
  text.append(name).append(" ").append(hex_of(bytes_of(bytes))) += '\n';
}

template <typename Array>
bool read_hex(std::string_view text, Array& into) {
  return parse_hex(text, mutable_bytes(into.data(), into.size()));
}

Status malformed(const std::string& what) {
  return Status(Code::kInvalidArgument, "session data: " + what);
}

// The names that must be present.
enum Seen : unsigned { kLease = 1, kTicket = 2, kKey = 4, kChallenge = 8, kDevices = 16 };

// Returns the name's bit, or 0 for an unknown name. `ok` is false when the value is malformed.
unsigned parse_line(std::string_view name, std::string_view value, SessionData& data, bool& ok) {
  if (name == "server") {
    ok = !value.empty();
    data.servers.emplace_back(value);
    return 0;
  }
  if (name == "deaths") {
    data.deaths = value;
    return 0;
  }
  if (name == "broker") {
    ok = !value.empty();
    data.broker = value;
    return 0;
  }
  if (name == "local") {
    ok = protocol::is_local_address(value);
    data.local = value;
    return 0;
  }
  if (name == "lease") return ok = read_hex(value, data.lease), kLease;
  if (name == "ticket") return ok = read_hex(value, data.ticket), kTicket;
  if (name == "key") return ok = read_hex(value, data.ticket_key), kKey;
  if (name == "challenge") return ok = read_hex(value, data.challenge), kChallenge;
  if (name == "security") {
    ok = value == "tls" || value == "none";
    data.encrypted = value == "tls";
    return 0;
  }
  if (name == "devices") {
    const auto end = value.data() + value.size();
    const auto parsed = std::from_chars(value.data(), end, data.device_count);
    ok = parsed.ec == std::errc() && parsed.ptr == end;
    return kDevices;
  }
  return 0;
}

Status check_file(int fd, const std::string& path) {
  struct stat about;
  if (fstat(fd, &about) != 0) return Status::from_errno(errno, path);
  if (about.st_uid != geteuid()) {
    return Status(Code::kRefused, path + " belongs to another user");
  }
  // A memory file's mode opens it to no one: it has no name and no link.
  if ((about.st_mode & 077) != 0 && about.st_nlink > 0) {
    return Status(Code::kRefused, path + " may be read by others; its mode must be 0600");
  }
  return Status();
}

// The value that this program was started with, whatever it has done to its environment since, or
// "".
std::string started_with(const char* name) {
  const UniqueFd fd(open("/proc/self/environ", O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return {};
  const std::string wanted = std::string(name) + "=";
  std::string entry;
  char bytes[4096];
  for (;;) {
    const ssize_t count = read(fd.get(), bytes, sizeof bytes);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return {};
    for (const char byte : std::string_view(bytes, static_cast<std::size_t>(count))) {
      if (byte != '\0') {
        // An entry that does not fit is not the one searched for, which is a path.
        if (entry.size() < kEntryBytesMax) entry += byte;
        continue;
      }
      if (entry.compare(0, wanted.size(), wanted) == 0) return entry.substr(wanted.size());
      entry.clear();
    }
  }
}

std::string session_path() {
  const char* now = getenv(kSessionVariable);
  return now != nullptr ? now : started_with(kSessionVariable);
}

}  // namespace

std::string serialise_session_data(const SessionData& data) {
  std::string text(kSessionFirstLine);
  text += '\n';
  for (const std::string& server : data.servers) text.append("server ").append(server) += '\n';
  if (!data.local.empty()) text.append("local ").append(data.local) += '\n';
  append_hex(text, "lease", data.lease);
  append_hex(text, "ticket", data.ticket);
  append_hex(text, "key", data.ticket_key);
  append_hex(text, "challenge", data.challenge);
  text.append("security ").append(data.encrypted ? "tls\n" : "none\n");
  text.append("devices ").append(std::to_string(data.device_count)) += '\n';
  if (!data.broker.empty()) text.append("broker ").append(data.broker) += '\n';
  if (!data.deaths.empty()) text.append("deaths ").append(data.deaths) += '\n';
  return text;
}

Result<SessionData> parse_session_data(std::string_view text) {
  if (text.size() > kSessionDataBytesMax) return malformed("too long");
  SessionData data;
  unsigned seen = 0;
  bool first = true;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos) return malformed("cut short");
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end + 1);
    if (first && line != kSessionFirstLine) return malformed("it begins with another line");
    if (std::exchange(first, false)) continue;
    const std::size_t space = line.find(' ');
    if (space == std::string_view::npos) return malformed("a line without a value");
    bool ok = true;
    seen |= parse_line(line.substr(0, space), line.substr(space + 1), data, ok);
    if (!ok) return malformed("the value of '" + std::string(line.substr(0, space)) + "'");
  }
  if (data.servers.empty()) return malformed("no server");
  if (seen != (kLease | kTicket | kKey | kChallenge | kDevices)) return malformed("incomplete");
  return data;
}

Result<SessionData> read_session_data(const std::string& path) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return Status::from_errno(errno, path);
  GPURUN_RETURN_IF_ERROR(check_file(fd.get(), path));
  // Processes share the position of a memory file.
  const Result<std::string> text = read_text_from_start(fd.get(), kSessionDataBytesMax, path);
  if (!text.ok()) return text.status();
  Result<SessionData> data = parse_session_data(*text);
  if (!data.ok()) return data;
  for (std::string* neighbour : {&data->deaths, &data->broker}) {
    if (!neighbour->empty() && neighbour->front() != '/') {
      *neighbour = folder_of(path) + "/" + *neighbour;
    }
  }
  return data;
}

bool in_network_of_gpurun() {
  const std::string path = session_path();
  constexpr std::string_view kProcesses = "/proc/";
  const std::size_t end = path.find('/', kProcesses.size());
  if (!path.starts_with(kProcesses) || end == std::string::npos) return true;
  struct stat theirs = {}, ours = {};
  return stat((path.substr(0, end) + "/ns/net").c_str(), &theirs) != 0 ||
         stat("/proc/self/ns/net", &ours) != 0 || theirs.st_ino == ours.st_ino;
}

Result<SessionData> session_data_from_environment() {
  const std::string path = session_path();
  if (path.empty()) {
    return Status(Code::kUnavailable,
                  std::string(kSessionVariable) + " is not set: start this program with gpurun");
  }
  Result<SessionData> data = read_session_data(path);
  if (data.status().code() != Code::kUnavailable && data.status().code() != Code::kRefused) {
    return data;
  }
  // Not "no GPU": there is a server, which this process does not find.
  if (!path.starts_with("/proc/")) {
    return Status(Code::kPeerGone, data.status().message() +
                                       ": gpurun has ended, or its session folder " +
                                       folder_of(path) +
                                       " is not mounted here for the user that the program runs "
                                       "as");
  }
  return Status(
      Code::kPeerGone,
      data.status().message() +
          ": gpurun's process has ended, or is another user's or out of sight here "
          "(chroot, PID namespace, container); start gpurun there, as the user that the "
          "program runs as, or give gpurun a --session-folder and mount that folder here");
}

}  // namespace gpurun::client
