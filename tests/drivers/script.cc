// Script: parses and applies the rules of a test driver.
#include "tests/drivers/script.h"

#include <dlfcn.h>

#include <cerrno>
#include <charconv>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "tests/drivers/argument.h"

namespace gpurun::devices {
namespace {

using driver_abi::Direction;
using driver_abi::Parameter;
using driver_abi::Row;
using driver_abi::Shape;

constexpr char kFileName[] = "driver.script";

using Words = std::vector<std::string>;

Words words_of(const std::string& line) {
  std::istringstream text(line.substr(0, line.find('#')));
  Words words;
  for (std::string word; text >> word;) words.push_back(word);
  return words;
}

Status fault(const std::string& reason) { return Status(Code::kInvalidArgument, reason); }

Status read_number(const std::string& word, std::uint32_t bytes, std::uint64_t* value) {
  const bool is_hexadecimal = word.starts_with("0x");
  const char* const begin = word.data() + (is_hexadecimal ? 2 : 0);
  const char* const end = word.data() + word.size();
  const auto [rest, error] = std::from_chars(begin, end, *value, is_hexadecimal ? 16 : 10);
  if (error != std::errc() || rest != end) return fault(word + " is not a number");
  if (bytes < sizeof *value && *value >> (8 * bytes) != 0) {
    return fault(word + " does not fit into " + std::to_string(bytes) + " bytes");
  }
  return Status();
}

// The words NAME VALUE, about a parameter that is passed by value.
Status read_argument(const Row& row, const std::string& name, const std::string& word,
                     std::uint8_t* index, std::uint64_t* value) {
  for (std::size_t i = 0; i < row.parameters.size(); ++i) {
    const Parameter& parameter = row.parameters[i];
    if (name != parameter.name) continue;
    if (parameter.shape != Shape::kScalar && parameter.shape != Shape::kHandle) {
      return fault(name + " of " + row.symbol + " is not passed by value");
    }
    *index = static_cast<std::uint8_t>(i);
    return read_number(word, parameter.element_bytes, value);
  }
  return fault(std::string(row.symbol) + " has no parameter " + name);
}

// The word VALUE, about the first output.
Status read_output(const Row& row, const std::string& word, std::uint8_t* index,
                   std::uint64_t* value) {
  for (std::size_t i = 0; i < row.parameters.size(); ++i) {
    const Parameter& parameter = row.parameters[i];
    if (parameter.direction == Direction::kIn) continue;
    const bool is_one =
        parameter.shape == Shape::kPointee || parameter.shape == Shape::kHandlePointee;
    if (!is_one || parameter.element_bytes > sizeof *value) break;
    *index = static_cast<std::uint8_t>(i);
    return read_number(word, parameter.element_bytes, value);
  }
  return fault("the first output of " + std::string(row.symbol) + " is not a number");
}

// The words FUNCTION KIND ... without a condition.
Status read_kind(const Row& row, const Words& words, Rule* rule) {
  const std::string& kind = words[1];
  if (kind == "crashes" && words.size() == 2) {
    rule->kind = Rule::Kind::kCrashes;
    return Status();
  }
  if (kind == "returns" && words.size() == 3) {
    rule->kind = Rule::Kind::kReturns;
    GPURUN_RETURN_IF_ERROR(read_number(words[2], sizeof rule->value, &rule->value));
    return rule->value <= INT_MAX ? Status() : fault(words[2] + " is not a CUresult");
  }
  if (kind == "takes" && words.size() == 4) {
    rule->kind = Rule::Kind::kTakes;
    return read_argument(row, words[2], words[3], &rule->parameter, &rule->value);
  }
  if (kind == "writes" && words.size() == 3) {
    rule->kind = Rule::Kind::kWrites;
    return read_output(row, words[2], &rule->parameter, &rule->value);
  }
  return fault("a function returns CODE, crashes, takes PARAMETER VALUE or writes VALUE");
}

Status read_rule(Words words, Rule* rule) {
  const Row* const row = driver_abi::find_row(words[0].c_str());
  if (row == nullptr) return fault(words[0] + " is neither a function of the driver nor a rule");
  rule->opcode = row->opcode;
  const std::size_t size = words.size();
  if (size > 3 && words[size - 3] == "if") {
    GPURUN_RETURN_IF_ERROR(read_argument(*row, words[size - 2], words[size - 1],
                                         &rule->condition_parameter, &rule->condition_value));
    words.resize(size - 3);
  }
  if (words.size() < 2) return fault("no rule for " + words[0]);
  return read_kind(*row, words, rule);
}

[[noreturn]] void end_process(const std::string& reason) {
  std::fprintf(stderr, "%s\n", reason.c_str());
  std::_Exit(1);
}

std::string folder_of_this_library() {
  Dl_info found;
  static const char kInside = 0;
  if (dladdr(&kInside, &found) == 0) end_process("the test driver finds no library of its own");
  const std::string path = found.dli_fname;
  return path.substr(0, path.rfind('/') + 1);
}

// False: there is no such file.
bool read_file(const std::string& path, std::string* text) {
  std::FILE* const file = std::fopen(path.c_str(), "re");
  if (file == nullptr && errno == ENOENT) return false;
  if (file == nullptr) end_process(path + ": " + std::strerror(errno));
  char part[4096];
  for (std::size_t bytes; (bytes = std::fread(part, 1, sizeof part, file)) != 0;) {
    text->append(part, bytes);
  }
  if (std::ferror(file) != 0) end_process(path + ": cannot be read");
  std::fclose(file);
  return true;
}

bool applies(const Rule& rule, const Row& row, void* const* arguments) {
  if (rule.opcode != row.opcode) return false;
  if (rule.condition_parameter == driver_abi::kNoParameter) return true;
  return integer_at(arguments[rule.condition_parameter],
                    row.parameters[rule.condition_parameter].element_bytes) == rule.condition_value;
}

}  // namespace

Result<Script> Script::parse(std::string_view text, const std::string& file, bool can_record) {
  Script script;
  std::istringstream lines{std::string(text)};
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    const Words words = words_of(line);
    if (words.empty()) continue;
    Status status;
    if (words.size() == 1 && words[0] == "record") {
      script.records_ = true;
      if (!can_record) status = fault("this driver does not record");
    } else {
      status = read_rule(words, &script.rules_.emplace_back());
    }
    if (!status.ok()) return fault(file + ":" + std::to_string(number) + ": " + status.message());
  }
  return script;
}

const Script* Script::beside_this_library(bool can_record) {
  const std::string path = folder_of_this_library() + kFileName;
  std::string text;
  if (!read_file(path, &text)) return nullptr;
  Result<Script> script = parse(text, path, can_record);
  if (!script.ok()) end_process(script.status().message());
  return new Script(*std::move(script));
}

std::optional<int> Script::before(const Row& row, void* const* arguments) const noexcept {
  for (const Rule& rule : rules_) {
    if (!applies(rule, row, arguments)) continue;
    if (rule.kind == Rule::Kind::kCrashes) __builtin_trap();
    if (rule.kind == Rule::Kind::kReturns) return static_cast<int>(rule.value);
    if (rule.kind == Rule::Kind::kTakes) {
      std::memcpy(arguments[rule.parameter], &rule.value,
                  row.parameters[rule.parameter].element_bytes);
    }
  }
  return std::nullopt;
}

void Script::after(const Row& row, void* const* arguments) const noexcept {
  for (const Rule& rule : rules_) {
    if (rule.kind != Rule::Kind::kWrites || !applies(rule, row, arguments)) continue;
    void* const place = pointer_of(arguments, rule.parameter);
    if (place == nullptr) continue;
    std::memcpy(place, &rule.value, row.parameters[rule.parameter].element_bytes);
  }
}

}  // namespace gpurun::devices
