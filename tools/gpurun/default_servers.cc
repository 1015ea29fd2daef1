// Default servers: the order of the places, and the change of the user's file by `gpurun login`.
#include "tools/gpurun/default_servers.h"

#include <cstdlib>
#include <sstream>

#include "base/file_io.h"
#include "tools/gpurun/bitfusion_servers.h"
#include "tools/gpurun/credential.h"
#include "tools/gpurun/private_file.h"

namespace gpurun::tools {
namespace {

Result<ServerList> read_if_there(const std::string& path) {
  Result<ServerList> read = read_servers_file(path);
  if (!read.ok() && read.status().code() == Code::kUnavailable) return ServerList();
  return read;
}

bool is_same(const Address& one, const Address& other) {
  return one.to_string() == other.to_string();
}

// The server that a line of a plain file names. Nothing: a comment, or "none".
std::optional<Address> server_of(const std::string& line) {
  std::istringstream words(line.substr(0, line.find('#')));
  std::string word;
  words >> word;
  const Result<Address> address = parse_address(word);
  return address.ok() && word != "none" ? std::optional<Address>(*address) : std::nullopt;
}

bool is_none(const std::string& line) {
  std::istringstream words(line.substr(0, line.find('#')));
  std::string word;
  return (words >> word) && word == "none";
}

}  // namespace

std::string user_servers_file() {
  const std::string folder = config_folder();
  return folder.empty() ? folder : folder + "/servers";
}

Result<DefaultServers> default_servers(const std::string& system_file) {
  const char* variable = getenv(kServersVariable);
  if (variable != nullptr && *variable != '\0') {
    Result<ServerList> list = parse_server_list(variable);
    if (!list.ok()) {
      return Status(list.status().code(),
                    std::string(kServersVariable) + ": " + list.status().message());
    }
    return DefaultServers{*std::move(list), kServersVariable};
  }
  for (const std::string& path : {user_servers_file(), system_file}) {
    if (path.empty()) continue;
    Result<ServerList> list = read_if_there(path);
    if (!list.ok()) return list.status();
    if (!list->empty()) return DefaultServers{*std::move(list), path};
  }
  return DefaultServers();
}

Status make_default(const std::string& path, const Address& server) {
  const Result<ServerList> kept = read_if_there(path);
  if (!kept.ok()) return kept.status();
  // read_if_there() has read it. A file that is missing has no lines.
  const Result<std::string> text_now = read_text_file(path, kServersFileBytesMax);
  std::istringstream content(text_now.ok() ? *text_now : std::string());
  std::string text = server.to_string() + "\n";
  if (is_bitfusion_servers(content.str())) {
    for (const Address& other : kept->servers) {
      if (!is_same(other, server)) text += other.to_string() + "\n";
    }
    return write_private_file(path, text);
  }
  for (std::string line; std::getline(content, line);) {
    const auto other = server_of(line);
    if (is_none(line) || (other && is_same(*other, server))) continue;
    text += line + "\n";
  }
  return write_private_file(path, text);
}

}  // namespace gpurun::tools
