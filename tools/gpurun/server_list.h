// ServerList: the servers that an option, a variable or a file names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace gpurun::tools {

struct Address {
  std::string host;  // Name or number. IPv6 without brackets.
  std::uint16_t port = 0;

  std::string to_string() const;
};

// Parses "HOST", "HOST:PORT", "[V6]", "[V6]:PORT". Refuses a bare IPv6 address, because its last
// group could be meant as a port. Ports are 1 to 65535. The default is limits::kDefaultPort.
Result<Address> parse_address(const std::string& text);

// Of a file with servers.
inline constexpr std::size_t kServersFileBytesMax = std::size_t{256} << 10;

struct ServerList {
  std::vector<Address> servers;
  // "none" in place of servers: a private server on this machine, whatever else names servers. A
  // host of that name must be written with its port.
  bool none = false;

  bool empty() const { return servers.empty() && !none; }
};

// "HOST[:PORT][,...]", or "none".
Result<ServerList> parse_server_list(const std::string& list);

// Reads a file with one server on each line and comments after '#', or one in the format of
// Bitfusion's servers.conf (bitfusion_servers.h). Empty when it names none. At most 256 KiB of text
// and 256 servers. kUnavailable: no such file. kInvalidArgument: the message names the file and
// line.
Result<ServerList> read_servers_file(const std::string& path);

// The servers of -l or -s. Empty: neither is given. Here a file that names no server is an error.
Result<ServerList> named_servers(const std::optional<std::string>& list,
                                 const std::optional<std::string>& file);

}  // namespace gpurun::tools
