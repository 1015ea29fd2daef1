// Bitfusion's file of servers: the indentation and the key before a line decide what it means.
#include "tools/gpurun/bitfusion_servers.h"

#include <cctype>
#include <optional>
#include <sstream>

namespace gpurun::tools {
namespace {

using Entry = std::pair<int, std::string>;

std::string stripped(const std::string& text) {
  const std::size_t first = text.find_first_not_of(" \t\r");
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

// The line without its comment: a '#' at the start or after a blank.
std::string without_comment(const std::string& line) {
  for (std::size_t at = line.find('#'); at != std::string::npos; at = line.find('#', at + 1)) {
    if (at == 0 || line[at - 1] == ' ' || line[at - 1] == '\t') return line.substr(0, at);
  }
  return line;
}

std::string unquoted(const std::string& value) {
  const bool quoted =
      value.size() > 1 && (value[0] == '"' || value[0] == '\'') && value.back() == value[0];
  return quoted ? value.substr(1, value.size() - 2) : value;
}

struct KeyValue {
  std::string key, value;
};

// Parses "key: value" or "key:". The two keys that matter may lack the blank, as real files have
// them.
std::optional<KeyValue> key_value(const std::string& text) {
  std::size_t end = 0;
  while (end < text.size() && (std::isalnum(static_cast<unsigned char>(text[end])) != 0 ||
                               text[end] == '_' || text[end] == '-')) {
    ++end;
  }
  if (end == 0 || end == text.size() || text[end] != ':') return std::nullopt;
  const std::string key = text.substr(0, end);
  const bool is_ours = key == "reachable" || key == "addresses" || key == "servers";
  if (end + 1 < text.size() && text[end + 1] != ' ' && !is_ours) return std::nullopt;
  return KeyValue{key, stripped(text.substr(end + 1))};
}

class Reader {
 public:
  Status read(int number, const std::string& line) {
    const std::string text = stripped(without_comment(line));
    if (text.empty() || text == "---") return {};
    if (line.find('\t') < line.find_first_not_of(" \t")) {
      return wrong(number, "a tab cannot indent here; use blanks");
    }
    const std::size_t indent = line.find_first_not_of(' ');
    if (text[0] == '-') return dash(number, indent, text);
    const auto pair = key_value(text);
    if (!pair) return wrong(number, "'" + text + "' is neither a key nor an entry of a list");
    if (indent == 0) {
      GPURUN_RETURN_IF_ERROR(end_server());
      in_servers_ = pair->key == "servers";
      if (in_servers_ && !pair->value.empty() && pair->value != "[]") {
        return wrong(number, "servers: must be followed by a list");
      }
      return {};
    }
    return key(number, indent, *pair);
  }
  Result<std::vector<Entry>> finish() {
    GPURUN_RETURN_IF_ERROR(end_server());
    return std::move(found_);
  }

 private:
  struct Server {
    int line = 0;
    std::optional<Entry> reachable;
    std::vector<Entry> addresses;
  };

  static Status wrong(int number, const std::string& what) {
    return Status(Code::kInvalidArgument, std::to_string(number) + ": " + what);
  }

  Status dash(int number, std::size_t indent, const std::string& text) {
    if (!in_servers_) return {};
    const std::string rest = stripped(text.substr(1));
    if (server_ && indent >= key_indent_) {
      if (in_addresses_) server_->addresses.emplace_back(number, unquoted(rest));
      return {};
    }
    GPURUN_RETURN_IF_ERROR(end_server());
    server_ = Server{number, {}, {}};
    // Keys of this entry are to the right of its dash.
    key_indent_ = indent + 1;
    if (rest.empty()) return {};
    if (const auto pair = key_value(rest)) return key(number, indent + 1, *pair);
    server_->addresses.emplace_back(number, unquoted(rest));
    return {};
  }

  Status key(int number, std::size_t indent, const KeyValue& pair) {
    if (!in_servers_) return {};
    if (!server_ || indent < key_indent_)
      return wrong(number, "'" + pair.key + "' is of no server");
    in_addresses_ = pair.key == "addresses";
    if (pair.key == "reachable" && !pair.value.empty()) {
      server_->reachable = Entry(number, unquoted(pair.value));
    }
    if (!in_addresses_ || pair.value.empty()) return {};
    if (pair.value[0] != '[' || pair.value.back() != ']') {
      return wrong(number, "addresses: must be followed by a list");
    }
    std::istringstream list(pair.value.substr(1, pair.value.size() - 2));
    for (std::string each; std::getline(list, each, ',');) {
      server_->addresses.emplace_back(number, unquoted(stripped(each)));
    }
    return {};
  }

  Status end_server() {
    in_addresses_ = false;
    if (!server_) return {};
    const Server server = *std::move(server_);
    server_.reset();
    if (!server.reachable && server.addresses.empty()) {
      return wrong(server.line, "this server has no address");
    }
    if (server.reachable) {
      found_.push_back(*server.reachable);
    } else {
      found_.insert(found_.end(), server.addresses.begin(), server.addresses.end());
    }
    return {};
  }

  std::vector<Entry> found_;
  std::optional<Server> server_;
  std::size_t key_indent_ = 0;
  bool in_servers_ = false, in_addresses_ = false;
};

}  // namespace

bool is_bitfusion_servers(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const std::string content = stripped(without_comment(line));
    if (content.empty() || content == "---") continue;
    const auto pair = key_value(content);
    // "servers:4790" is a host.
    return pair && pair->key == "servers" && (pair->value.empty() || pair->value[0] == '[');
  }
  return false;
}

Result<std::vector<Entry>> bitfusion_servers(const std::string& text) {
  Reader reader;
  std::istringstream lines(text);
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    GPURUN_RETURN_IF_ERROR(reader.read(number, line));
  }
  return reader.finish();
}

}  // namespace gpurun::tools
