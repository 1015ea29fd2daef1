// SystemFiles: what this machine's kernel shows in /sys, /proc, /dev and /etc, below any root
// folder. Tests give an invented tree.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace gpurun {

class SystemFiles {
 public:
  // `root` takes the place of "/". Without it these are the machine's own files.
  explicit SystemFiles(const std::string& root = "");

  // The file's text without blanks and line ends at its end. Nothing: it cannot be read, or has
  // more than 64 KiB. `path` is absolute, as in "/sys/class/net/eth0/mtu".
  std::optional<std::string> text(const std::string& path) const;
  // The whole number that the file begins with, in decimal or, after "0x", in hexadecimal.
  std::optional<std::int64_t> number(const std::string& path) const;
  // All bytes of the file, at most 64 KiB.
  std::optional<std::string> bytes(const std::string& path) const;
  // The names in a folder, sorted. Empty: there is no such folder.
  std::vector<std::string> entries(const std::string& path) const;
  bool exists(const std::string& path) const;
  // The path that links lead to, without the root. Empty: it leads nowhere, or out of the root.
  std::string target(const std::string& path) const;

 private:
  std::string root_;  // Without a link. Empty: "/".
};

// The lines of a text.
std::vector<std::string> lines_of(const std::string& text);

}  // namespace gpurun
