// Credential: files are checked by their descriptors, so that the checked file is the one that is
// read.
#include "tools/gpurun/credential.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <utility>

#include "base/file_io.h"
#include "base/unique_fd.h"
#include "base/user_folders.h"
#include "protocol/auth/secret_text.h"
#include "protocol/limits.h"
#include "tools/gpurun/secret.h"
#include "transport/sockets/address.h"

namespace gpurun::tools {
namespace {

// Line ends and blanks may surround the token.
constexpr std::size_t kTokenFileBytesMax = 4096;

std::string value_of(const char* variable) {
  const char* value = getenv(variable);
  return value != nullptr ? value : "";
}

// A name without a file may be the token or secret itself, so no message may hold it.
Status check_named(const std::string& file, const char* origin, const std::string& kind) {
  if (file.empty() || access(file.c_str(), F_OK) == 0 || !protocol::may_be_secret(file)) return {};
  return Status(Code::kInvalidArgument,
                std::string(origin) + " takes the name of a file that holds a " + kind +
                    ", and there is no file of the name that was given (it is not shown, for it "
                    "may be the " +
                    kind + " itself); write the " + kind +
                    " into a file of mode 0600, and name that file");
}

// The token in `path`, if there is such a file.
Result<Credential> token_at(const std::string& path) {
  Credential found;
  if (access(path.c_str(), F_OK) != 0) return found;
  const Result<protocol::Token> token = read_token(path);
  if (!token.ok()) return token.status();
  found.token = *token;
  found.file = path;
  return found;
}

}  // namespace

Result<protocol::Token> read_token(const std::string& path) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.valid()) return Status::from_errno(errno, "token file " + path);
  struct stat about = {};
  if (fstat(fd.get(), &about) != 0) return Status::from_errno(errno, path);
  if (S_ISDIR(about.st_mode)) {
    return Status(Code::kInvalidArgument, path + " is a folder, no file with a token");
  }
  if ((about.st_mode & 077) != 0) {
    return Status(Code::kRefused, path + ": others may read this token; chmod 600 " + path);
  }
  const Result<std::string> text = read_text(fd.get(), kTokenFileBytesMax, path);
  if (!text.ok()) return text.status();
  Result<protocol::Token> token = protocol::parse_token(*text);
  if (!token.ok()) return Status(token.status().code(), path + ": " + token.status().message());
  return token;
}

Result<Credential> named_credential(std::string token_file, std::string secret_file) {
  const char* token_origin = "--token-file";
  const char* secret_origin = "--secret-file";
  // The command line overrides the environment.
  if (token_file.empty() && secret_file.empty()) {
    token_file = value_of(token_origin = kTokenFileVariable);
    secret_file = value_of(secret_origin = kSecretFileVariable);
  }
  Credential named;
  if (!token_file.empty() && !secret_file.empty()) {
    return Status(Code::kInvalidArgument, std::string("both a token (") + token_origin +
                                              ") and a secret (" + secret_origin +
                                              ") are named; name one of them");
  }
  GPURUN_RETURN_IF_ERROR(check_named(token_file, token_origin, "token"));
  GPURUN_RETURN_IF_ERROR(check_named(secret_file, secret_origin, "secret"));
  if (!token_file.empty()) {
    const Result<protocol::Token> token = read_token(token_file);
    if (!token.ok()) return token.status();
    named.token = *token;
    named.file = token_file;
  } else if (!secret_file.empty()) {
    Result<Bytes> secret = read_secret_file(secret_file);
    if (!secret.ok()) return secret.status();
    named.secret = *std::move(secret);
    named.file = secret_file;
  }
  return named;
}

Result<Credential> found_credential(const std::string& server) {
  const std::string folder = config_folder();
  const auto place = transport::sockets::parse_host_port(server, limits::kDefaultPort);
  // A host has no slash, but could be the name of a folder such as "..".
  if (place.ok() && !folder.empty() && place->host[0] != '.') {
    for (const std::string& name : {transport::sockets::format_host_port(*place), place->host}) {
      Result<Credential> found = token_at(folder + "/tokens/" + name);
      if (!found.ok() || found->token) return found;
    }
  }
  Credential own;
  if (auto secret = read_run_secret(server); secret.ok()) own.secret = *std::move(secret);
  if (!own.empty() || folder.empty()) return own;
  return token_at(folder + "/token");
}

std::string config_folder() { return xdg_folder("XDG_CONFIG_HOME", ".config"); }

}  // namespace gpurun::tools
