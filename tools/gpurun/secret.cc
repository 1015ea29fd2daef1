// Server's secret: random bytes for our own server, and a file's for another one, if no other user
// may read it.
#include "tools/gpurun/secret.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/unique_fd.h"
#include "protocol/auth/run_secret.h"
#include "protocol/auth/secret_text.h"
#include "protocol/limits.h"
#include "transport/sockets/address.h"

namespace gpurun::tools {
namespace {

Result<Bytes> read_open_file(int fd, const struct stat& about, const std::string& path) {
  if (S_ISDIR(about.st_mode)) {
    return Status(Code::kInvalidArgument, path + " is a folder, no file with a secret");
  }
  if ((about.st_mode & 077) != 0) {
    return Status(Code::kRefused, path + ": others may read this secret; chmod 600 " + path);
  }
  return protocol::read_secret_bytes(fd, path);
}

// Numbers, and the only name that every machine has for itself.
bool is_this_machine(const transport::sockets::HostPort& place) {
  if (place.host == "localhost") return true;
  in6_addr number = {};
  if (inet_pton(AF_INET, place.host.c_str(), &number) != 1 &&
      inet_pton(AF_INET6, place.host.c_str(), &number) != 1) {
    return false;
  }
  const auto addresses = transport::sockets::resolve(place, false);
  return addresses.ok() && !addresses->empty() && addresses->front().is_loopback();
}

}  // namespace

Result<Bytes> read_secret_file(const std::string& path) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return Status::from_errno(errno, "secret file " + path);
  struct stat about = {};
  if (fstat(fd.get(), &about) != 0) return Status::from_errno(errno, path);
  return read_open_file(fd.get(), about, path);
}

Result<Bytes> read_run_secret(const std::string& server) {
  const auto place = transport::sockets::parse_host_port(server, limits::kDefaultPort);
  if (!place.ok() || !is_this_machine(*place)) return Bytes();
  const std::string folder = protocol::run_secret_folder();
  if (folder.empty()) return Status(Code::kUnavailable, "XDG_RUNTIME_DIR is not set");
  const std::string path = folder + "/" + protocol::run_secret_name(place->port);
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!fd.valid()) return Status::from_errno(errno, path);
  struct stat about = {};
  if (fstat(fd.get(), &about) != 0) return Status::from_errno(errno, path);
  if (!S_ISREG(about.st_mode) || (about.st_uid != geteuid() && about.st_uid != 0)) {
    return Status(Code::kRefused, path + " is another user's");
  }
  return read_open_file(fd.get(), about, path);
}

}  // namespace gpurun::tools
