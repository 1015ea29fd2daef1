// SystemFiles: small files that the kernel makes as they are read.
#include "base/system_files.h"

#include <dirent.h>
#include <limits.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <memory>
#include <sstream>

#include "base/file_io.h"

namespace gpurun {
namespace {

constexpr std::size_t kShownBytesMax = std::size_t{64} << 10;

struct CloseFolder {
  void operator()(DIR* folder) const { closedir(folder); }
};

std::string resolved(const std::string& path) {
  const std::unique_ptr<char, decltype(&std::free)> real(realpath(path.c_str(), nullptr),
                                                         &std::free);
  return real == nullptr ? std::string() : real.get();
}

}  // namespace

SystemFiles::SystemFiles(const std::string& root) : root_(root.empty() ? "" : resolved(root)) {
  if (root_.empty() && !root.empty()) root_ = root;  // A folder that does not exist shows nothing.
  if (root_ == "/") root_.clear();
}

std::optional<std::string> SystemFiles::bytes(const std::string& path) const {
  Result<std::string> read = read_text_file(root_ + path, kShownBytesMax);
  if (!read.ok()) return std::nullopt;
  return *std::move(read);
}

std::optional<std::string> SystemFiles::text(const std::string& path) const {
  std::optional<std::string> read = bytes(path);
  if (!read) return std::nullopt;
  read->erase(read->find_last_not_of(" \t\r\n") + 1);
  return read;
}

std::optional<std::int64_t> SystemFiles::number(const std::string& path) const {
  const std::optional<std::string> read = text(path);
  if (!read) return std::nullopt;
  const bool hexadecimal = read->compare(0, 2, "0x") == 0;
  const char* begin = read->data() + (hexadecimal ? 2 : 0);
  std::int64_t value = 0;
  const auto parsed =
      std::from_chars(begin, read->data() + read->size(), value, hexadecimal ? 16 : 10);
  if (parsed.ec != std::errc()) return std::nullopt;
  return value;
}

std::vector<std::string> SystemFiles::entries(const std::string& path) const {
  std::vector<std::string> names;
  const std::unique_ptr<DIR, CloseFolder> folder(opendir((root_ + path).c_str()));
  if (folder == nullptr) return names;
  while (const dirent* entry = readdir(folder.get())) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

bool SystemFiles::exists(const std::string& path) const {
  return access((root_ + path).c_str(), F_OK) == 0;
}

std::string SystemFiles::target(const std::string& path) const {
  const std::string real = resolved(root_ + path);
  if (real.compare(0, root_.size(), root_) != 0) return {};
  return real.substr(root_.size());
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

}  // namespace gpurun
