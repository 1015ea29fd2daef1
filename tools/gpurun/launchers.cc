// Launchers: their options, from their manual pages (coreutils 9, util-linux 2.38).
#include "tools/gpurun/launchers.h"

#include <algorithm>
#include <string_view>

#include "tools/gpurun/program.h"

namespace gpurun::tools {
namespace {

constexpr int kLaunchersDeep = 8;

struct Launcher {
  std::string_view name;
  std::string_view letters_with_value;             // -n 5, or -n5.
  std::vector<std::string_view> words_with_value;  // --signal KILL, or --signal=KILL.
  std::size_t own_words;                           // After the options, before the command.
};

const Launcher* launcher_named(std::string_view path) {
  static const auto& known = *new std::vector<Launcher>{
      {"env", "uC", {"--unset", "--chdir"}, 0},
      {"nice", "n", {"--adjustment"}, 0},
      {"nohup", "", {}, 0},
      {"setsid", "", {}, 0},
      {"stdbuf", "ioe", {"--input", "--output", "--error"}, 0},
      {"timeout", "ks", {"--kill-after", "--signal"}, 1},
  };
  const std::string_view name = path.substr(path.rfind('/') + 1);
  const auto found = std::find_if(known.begin(), known.end(),
                                  [name](const Launcher& each) { return each.name == name; });
  return found == known.end() ? nullptr : &*found;
}

// One option of a launcher.
struct Option {
  bool takes_next = false;  // Its value is the next word.
  bool drops = false;       // env's: without the environment.
  bool not_understood = false;
};

Option read_option(const Launcher& launcher, const std::string& word) {
  const bool is_env = launcher.name == "env";
  Option option;
  if (word.compare(0, 2, "--") == 0) {
    const std::string_view name = std::string_view(word).substr(0, word.find('='));
    const auto& names = launcher.words_with_value;
    option.takes_next =
        name.size() == word.size() && std::find(names.begin(), names.end(), name) != names.end();
    option.drops = is_env && name == "--ignore-environment";
    option.not_understood = is_env && name == "--split-string";
    return option;
  }
  option.drops = is_env && word == "-";
  for (std::size_t i = 1; i < word.size(); ++i) {
    if (launcher.letters_with_value.find(word[i]) != std::string_view::npos) {
      option.takes_next = i + 1 == word.size();
      break;
    }
    option.drops |= is_env && word[i] == 'i';
    option.not_understood |= is_env && word[i] == 'S';
  }
  return option;
}

}  // namespace

Result<std::optional<Words>> launched_by(const Words& command) {
  const std::optional<Words> nothing;
  const Launcher* launcher = command.empty() ? nullptr : launcher_named(command[0]);
  if (launcher == nullptr) return nothing;
  bool drops = false;
  std::size_t at = 1;
  for (; at < command.size() && !command[at].empty() && command[at][0] == '-'; ++at) {
    if (command[at] == "--") {
      ++at;
      break;
    }
    const Option option = read_option(*launcher, command[at]);
    if (option.not_understood) return nothing;
    drops |= option.drops;
    if (option.takes_next) ++at;
  }
  if (launcher->name == "env") {
    while (at < command.size() && command[at].find('=') != std::string::npos) ++at;
  }
  at += launcher->own_words;
  if (at >= command.size()) return nothing;
  if (drops) {
    return Status(Code::kRefused,
                  "env -i drops the variables that load our library; write it before gpurun: "
                  "env -i ... gpurun ... -- " +
                      command[at]);
  }
  return std::optional<Words>(
      Words(command.begin() + static_cast<std::ptrdiff_t>(at), command.end()));
}

Status can_be_preloaded(const std::string& path, const Words& command,
                        const std::string& search_path, const std::string& asan_options) {
  std::string program = path;
  Words words = command;
  for (int depth = 0; depth < kLaunchersDeep; ++depth) {
    GPURUN_RETURN_IF_ERROR(can_be_preloaded(program, asan_options));
    Result<std::optional<Words>> launched = launched_by(words);
    if (!launched.ok()) return launched.status();
    if (!launched->has_value()) return {};
    words = **std::move(launched);
    Result<std::string> found = find_program(words[0], search_path);
    if (!found.ok()) return {};  // The launcher itself will report it.
    program = *std::move(found);
  }
  return {};
}

}  // namespace gpurun::tools
