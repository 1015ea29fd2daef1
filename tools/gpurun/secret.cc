// Random bytes for our own server; for another, a file's, if nobody else may read it.
#include "tools/gpurun/secret.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "base/unique_fd.h"
#include "protocol/proof.h"

namespace gpurun::tools {
namespace {

constexpr std::size_t kSecretBytesMin = 16;
constexpr std::size_t kSecretBytesMax = 4096;

}  // namespace

Result<Bytes> read_secret_file(const std::string& path) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return Status::from_errno(errno, "secret file " + path);
  struct stat about = {};
  if (fstat(fd.get(), &about) != 0) return Status::from_errno(errno, path);
  if ((about.st_mode & 077) != 0) {
    return Status(Code::kRefused, path + ": others may read this secret; chmod 600 " + path);
  }
  Bytes secret(kSecretBytesMax + 2);
  std::size_t bytes = 0;
  while (bytes < secret.size()) {
    const ssize_t got = read(fd.get(), secret.data() + bytes, secret.size() - bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Status::from_errno(errno, path);
    if (got == 0) break;
    bytes += static_cast<std::size_t>(got);
  }
  while (bytes > 0 &&
         (secret[bytes - 1] == std::byte{'\n'} || secret[bytes - 1] == std::byte{'\r'})) {
    --bytes;
  }
  if (bytes < kSecretBytesMin || bytes > kSecretBytesMax) {
    return Status(Code::kInvalidArgument, path + ": a secret has 16 to 4096 bytes");
  }
  secret.resize(bytes);
  return secret;
}

Result<Bytes> make_secret() {
  const auto random = protocol::random_array<std::array<std::uint8_t, 32>>();
  if (!random.ok()) return random.status();
  Bytes digits;
  for (const std::uint8_t byte : *random) {
    for (const int shift : {4, 0}) {
      digits.push_back(static_cast<std::byte>("0123456789abcdef"[(byte >> shift) & 15]));
    }
  }
  return digits;
}

}  // namespace gpurun::tools
