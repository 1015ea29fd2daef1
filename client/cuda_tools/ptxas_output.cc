// PtxasOutput: reads ptxas's command line as its manual describes it.
#include "client/cuda_tools/ptxas_output.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>

#include "base/file_io.h"
#include "base/unique_fd.h"
#include "driver_abi/cubin_with_ptx.h"
#include "driver_abi/elf_sections.h"

namespace gpurun::client::cuda_tools {
namespace {

constexpr std::size_t kFileBytesMax = std::size_t{1} << 30;
constexpr int kOptionFilesDeep = 4;

enum class Option { kOther, kOutput, kString, kFile };

// The value of `word` if it is one of the options that matter, after "=" or in the next word.
Option option_of(std::string_view word, std::string_view* value, bool* in_word) {
  struct Named {
    std::string_view name;
    Option option;
  };
  constexpr Named kOptions[] = {{"--output-file", Option::kOutput},     {"-o", Option::kOutput},
                                {"--input-as-string", Option::kString}, {"-ias", Option::kString},
                                {"--options-file", Option::kFile},      {"-optf", Option::kFile}};
  for (const Named& each : kOptions) {
    if (word.substr(0, each.name.size()) != each.name) continue;
    const std::string_view rest = word.substr(each.name.size());
    *in_word = !rest.empty();
    if (!rest.empty() && rest[0] != '=') continue;
    *value = rest.empty() ? rest : rest.substr(1);
    return each.option;
  }
  return Option::kOther;
}

// The words of a file of options, which white space separates.
std::vector<std::string> words_of_file(const std::string& path) {
  std::vector<std::string> words;
  const Result<std::string> text = read_text_file(path, kFileBytesMax);
  if (!text.ok()) return words;
  std::string_view rest(*text);
  for (;;) {
    const std::size_t start = rest.find_first_not_of(" \t\r\n");
    if (start == std::string_view::npos) return words;
    rest.remove_prefix(start);
    const std::size_t bytes = std::min(rest.find_first_of(" \t\r\n"), rest.size());
    words.emplace_back(rest.substr(0, bytes));
    rest.remove_prefix(bytes);
  }
}

void parse(const std::vector<std::string>& words, int depth, PtxasCommand* command) {
  for (std::size_t at = 0; at < words.size(); ++at) {
    std::string_view value;
    bool in_word = false;
    const Option option = option_of(words[at], &value, &in_word);
    if (option == Option::kOther) {
      if (words[at].empty() || words[at][0] == '-') continue;
      command->files.push_back(words[at]);
      continue;
    }
    if (!in_word) {
      if (at + 1 == words.size()) return;
      value = words[++at];
    }
    if (option == Option::kOutput) command->output = value;
    if (option == Option::kString) command->strings.emplace_back(value);
    if (option == Option::kFile && depth < kOptionFilesDeep) {
      parse(words_of_file(std::string(value)), depth + 1, command);
    }
  }
}

// Values of options are among the words, and ptxas has accepted each input.
bool is_ptx(std::string_view text) {
  return text.find('\0') >= text.find_last_not_of('\0') + 1 &&
         text.find(".version") != std::string_view::npos;
}

bool write_at(int file, ByteView bytes, std::size_t offset) {
  while (!bytes.empty()) {
    const ssize_t count = pwrite(file, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(count));
    offset += static_cast<std::size_t>(count);
  }
  return true;
}

// Writes what is new behind ptxas's own output first. Without room the file stays as ptxas wrote
// it.
Status extend(const std::string& path, std::size_t own_bytes, const Bytes& content) {
  const UniqueFd file(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!file.valid()) return Status::from_errno(errno, path);
  const ByteView all(content.data(), content.size());
  if (write_at(file.get(), all.subspan(own_bytes), own_bytes) &&
      write_at(file.get(), all.first(own_bytes), 0)) {
    return {};
  }
  const Status failed = Status::from_errno(errno, path);
  static_cast<void>(ftruncate(file.get(), static_cast<off_t>(own_bytes)));
  return failed;
}

}  // namespace

PtxasCommand parse_ptxas_command(const std::vector<std::string>& words) {
  PtxasCommand command;
  parse(words, 0, &command);
  return command;
}

Status add_ptx_to_output(const PtxasCommand& command) {
  struct stat about;
  if (command.output.empty() || stat(command.output.c_str(), &about) != 0 ||
      !S_ISREG(about.st_mode)) {
    return {};
  }
  const Result<std::string> code = read_text_file(command.output, kFileBytesMax);
  if (!code.ok()) return code.status();
  const ByteView cubin = byte_view(code->data(), code->size());
  if (!driver_abi::is_elf(cubin)) return {};
  std::vector<std::string> texts = command.strings;
  for (const std::string& file : command.files) {
    if (file == command.output) continue;
    Result<std::string> text = read_text_file(file, kFileBytesMax);
    if (!text.ok() || !is_ptx(*text)) continue;
    text->resize(text->find_last_not_of('\0') + 1);
    texts.push_back(*std::move(text));
  }
  if (texts.empty()) return {};
  const Result<Bytes> with_ptx = driver_abi::cubin_with_ptx(cubin, texts);
  if (!with_ptx.ok()) return with_ptx.status();
  return extend(command.output, cubin.size(), *with_ptx);
}

}  // namespace gpurun::client::cuda_tools
