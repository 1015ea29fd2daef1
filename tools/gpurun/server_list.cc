// ServerList: the text of lists and files, checked line by line.
#include "tools/gpurun/server_list.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <sstream>

#include "base/file_io.h"
#include "base/unique_fd.h"
#include "protocol/auth/secret_text.h"
#include "protocol/limits.h"
#include "tools/gpurun/bitfusion_servers.h"

namespace gpurun::tools {
namespace {

constexpr std::size_t kServersMax = 256;
constexpr const char* kNone = "none";

Status wrong(const std::string& message) { return Status(Code::kInvalidArgument, message); }

std::string trimmed(const std::string& line) {
  const std::string text = line.substr(0, line.find('#'));
  const std::size_t first = text.find_first_not_of(" \t\r");
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

// Reads a file that the user may have named by mistake: a folder, a device, a picture.
Result<std::string> read_text(const std::string& path) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.valid()) {
    const Code code =
        errno == ENOENT || errno == ENOTDIR ? Code::kUnavailable : Code::kInvalidArgument;
    return Status(code, Status::from_errno(errno, "cannot read " + path).message());
  }
  Result<std::string> text = read_text(fd.get(), kServersFileBytesMax, path, Code::kTooLarge);
  if (text.status().code() == Code::kTooLarge) return wrong(text.status().message());
  if (!text.ok()) return wrong("cannot read " + text.status().message());
  const auto is_text = [](char byte) {
    return static_cast<unsigned char>(byte) >= 0x20 || byte == '\n' || byte == '\r' || byte == '\t';
  };
  if (!std::all_of(text->begin(), text->end(), is_text)) return wrong(path + " is no text");
  return text;
}

std::optional<std::uint64_t> port_number(const std::string& text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Adds the servers in `text`. "none" must be alone.
Status add(const std::string& text, ServerList* list) {
  if (text == kNone) {
    list->none = true;
  } else {
    const Result<Address> address = parse_address(text);
    if (!address.ok()) return address.status();
    list->servers.push_back(*address);
  }
  if (list->none && !list->servers.empty()) return wrong("'none' and servers are in one list");
  if (list->servers.size() > kServersMax) return wrong("more than 256 servers are named");
  return {};
}

}  // namespace

std::string Address::to_string() const {
  const bool is_v6 = host.find(':') != std::string::npos;
  return (is_v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

Result<ServerList> parse_server_list(const std::string& text) {
  ServerList list;
  for (std::size_t start = 0; start <= text.size();) {
    const std::size_t comma = std::min(text.find(',', start), text.size());
    GPURUN_RETURN_IF_ERROR(add(text.substr(start, comma - start), &list));
    start = comma + 1;
  }
  return list;
}

Result<ServerList> read_servers_file(const std::string& path) {
  const Result<std::string> content = read_text(path);
  if (!content.ok()) return content.status();
  ServerList list;
  if (is_bitfusion_servers(*content)) {
    const auto lines = bitfusion_servers(*content);
    if (!lines.ok()) return wrong(path + ":" + lines.status().message());
    for (const auto& [number, text] : *lines) {
      const Status added = add(text, &list);
      if (!added.ok()) return wrong(path + ":" + std::to_string(number) + ": " + added.message());
    }
    return list;
  }
  std::istringstream file(*content);
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    const std::string text = trimmed(line);
    if (text.empty()) continue;
    const Status added = text.find(',') != std::string::npos
                             ? wrong("write one server a line, no commas")
                             : add(text, &list);
    if (!added.ok()) return wrong(path + ":" + std::to_string(number) + ": " + added.message());
  }
  return list;
}

Result<ServerList> named_servers(const std::optional<std::string>& list,
                                 const std::optional<std::string>& file) {
  if (list) return parse_server_list(*list);
  if (!file) return ServerList();
  Result<ServerList> read = read_servers_file(*file);
  if (!read.ok()) {
    const std::string& why = read.status().message();
    return wrong(why.compare(0, file->size() + 1, *file + ":") == 0 ? why : "-s: " + why);
  }
  if (read->empty()) return wrong("-s: " + *file + " names no server");
  return read;
}

Result<Address> parse_address(const std::string& text) {
  // So that no resolver and no log gets it.
  if (protocol::holds_token_prefix(text)) {
    return wrong(
        "a token is in the place of a server's HOST[:PORT]; it is not looked up and not shown. "
        "Write gpurun login HOST, which asks for the token or reads it from stdin");
  }
  Address address;
  address.port = limits::kDefaultPort;
  std::string port;
  if (!text.empty() && text[0] == '[') {
    const std::size_t close = text.find(']');
    const bool port_follows = close != std::string::npos && close + 1 < text.size();
    if (close == std::string::npos || close < 3 || (port_follows && text[close + 1] != ':')) {
      return wrong("'" + text + "' is no [IPv6] or [IPv6]:PORT");
    }
    address.host = text.substr(1, close - 1);
    if (port_follows) port = text.substr(close + 2);
    if (port_follows && port.empty()) return wrong("'" + text + "' has no port after the colon");
  } else {
    const std::size_t colon = text.find(':');
    if (colon != text.rfind(':')) {
      return wrong("'" + text + "': write an IPv6 address in brackets, [" + text + "]");
    }
    address.host = text.substr(0, colon);
    if (colon != std::string::npos) {
      port = text.substr(colon + 1);
      if (port.empty()) return wrong("'" + text + "' has no port after the colon");
    }
  }
  if (address.host.empty() || address.host.size() > 253 ||
      address.host.find_first_of(" \t\r\n/") != std::string::npos) {
    return wrong("'" + text + "' names no host");
  }
  if (!port.empty()) {
    const auto number = port_number(port);
    if (!number || *number < 1 || *number > 65'535) {
      return wrong("'" + text + "': the port is a number from 1 to 65535");
    }
    address.port = static_cast<std::uint16_t>(*number);
  }
  return address;
}

}  // namespace gpurun::tools
