// read_entries(): scans PTX for kernels.
#include "tests/drivers/null/ptx_entries.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>

namespace gpurun::null_device {
namespace {

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  std::string word;
  for (const char c : text) {
    if (std::isspace(static_cast<unsigned char>(c)) == 0) {
      word += c;
    } else if (!word.empty()) {
      words.push_back(std::move(word));
      word.clear();
    }
  }
  if (!word.empty()) words.push_back(std::move(word));
  return words;
}

// ".u64" -> 8. 0: not a type.
std::size_t type_bytes(const std::string& word) {
  if (word.size() < 3 || word[0] != '.' || std::string("busf").find(word[1]) == std::string::npos) {
    return 0;
  }
  const int bits = std::atoi(word.c_str() + 2);
  return bits == 8 || bits == 16 || bits == 32 || bits == 64 || bits == 128
             ? static_cast<std::size_t>(bits) / 8
             : 0;
}

// ".param .align 8 .b8 name[24]" or ".param .u64 .ptr .align 16 name".
KernelParameter read_parameter(std::string_view text, std::size_t used) {
  const std::vector<std::string> words = words_of(text);
  std::size_t element = 0;
  std::size_t align = 0;
  bool pointee = false;  // An .align after .ptr is that of its target.
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] == ".ptr") pointee = true;
    if (words[i] == ".align" && !pointee && i + 1 < words.size()) {
      align = static_cast<std::size_t>(std::max(1, std::atoi(words[i + 1].c_str())));
    }
    if (const std::size_t bytes = type_bytes(words[i]); bytes != 0 && element == 0) element = bytes;
  }
  element = std::max<std::size_t>(1, element);
  std::size_t count = 1;
  if (const auto open = text.rfind('['); open != std::string_view::npos) {
    const std::string digits(text.substr(open + 1));
    count = static_cast<std::size_t>(std::strtoul(digits.c_str(), nullptr, 10));
  }
  align = std::max(align, element);
  return {(used + align - 1) / align * align, element * count};
}

}  // namespace

std::vector<KernelEntry> read_entries(std::string_view ptx) {
  constexpr std::string_view kEntry = ".entry";
  std::vector<KernelEntry> entries;
  for (auto at = ptx.find(kEntry); at != std::string_view::npos; at = ptx.find(kEntry, at)) {
    at += kEntry.size();
    const auto end = ptx.find_first_of("({;", at);
    if (end == std::string_view::npos) break;
    const std::vector<std::string> name = words_of(ptx.substr(at, end - at));
    if (name.empty()) continue;
    KernelEntry entry{name[0], {}};
    const auto close = ptx[end] == '(' ? ptx.find(')', end) : end;
    if (close == std::string_view::npos) break;
    std::size_t used = 0;
    for (auto start = end + 1; start < close;) {
      const auto comma = std::min(ptx.find(',', start), close);
      const std::string_view text = ptx.substr(start, comma - start);
      if (text.find(".param") != std::string_view::npos) {
        entry.parameters.push_back(read_parameter(text, used));
        used = entry.parameters.back().offset + entry.parameters.back().bytes;
      }
      start = comma + 1;
    }
    entries.push_back(std::move(entry));
    at = close;
  }
  return entries;
}

}  // namespace gpurun::null_device
