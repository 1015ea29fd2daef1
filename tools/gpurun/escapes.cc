// Escapes: known by their names only, as users write them.
#include "tools/gpurun/escapes.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace gpurun::tools {
namespace {

constexpr int kDeep = 8;

enum class Where { kServer, kContainer, kOtherMachine, kOtherUser, kService, kLater, kScheduler };

struct Escape {
  std::string_view name;
  Where where;
};
constexpr auto kEscapes = std::to_array<Escape>({
    {"tmux", Where::kServer},         {"screen", Where::kServer},
    {"byobu", Where::kServer},        {"zellij", Where::kServer},
    {"ssh", Where::kOtherMachine},    {"mosh", Where::kOtherMachine},
    {"rsh", Where::kOtherMachine},    {"pdsh", Where::kOtherMachine},
    {"docker", Where::kContainer},    {"podman", Where::kContainer},
    {"nerdctl", Where::kContainer},   {"kubectl", Where::kContainer},
    {"lxc", Where::kContainer},       {"machinectl", Where::kContainer},
    {"apptainer", Where::kContainer}, {"singularity", Where::kContainer},
    {"flatpak", Where::kContainer},   {"systemd-run", Where::kService},
    {"srun", Where::kScheduler},      {"sbatch", Where::kScheduler},
    {"salloc", Where::kScheduler},    {"qsub", Where::kScheduler},
    {"bsub", Where::kScheduler},      {"at", Where::kLater},
    {"batch", Where::kLater},         {"crontab", Where::kLater},
    {"su", Where::kOtherUser},        {"runuser", Where::kOtherUser},
    {"doas", Where::kOtherUser},      {"pkexec", Where::kOtherUser},
    {"sudo", Where::kOtherUser},
});

std::string base_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

std::string sentence(const std::string& name, Where where) {
  switch (where) {
    case Where::kServer:
      return name + " starts programs in a server process, which may be older than this run and " +
             "then does not reach its GPU; write gpurun inside it: gpurun ... -- PROGRAM";
    case Where::kContainer:
      return name + " starts programs in a container, which this run's GPU does not reach; see " +
             "--session-folder, or write gpurun inside it: " + name + " ... gpurun ... -- PROGRAM";
    case Where::kOtherMachine:
      return name + " starts programs on another machine, which this run's GPU does not reach; " +
             "write gpurun there: " + name + " HOST gpurun ... -- PROGRAM";
    case Where::kScheduler:
      return name + " starts programs by way of the scheduler, which this run's GPU does not " +
             "reach; write gpurun in the job: " + name + " ... gpurun ... -- PROGRAM";
    case Where::kService:
      return name + " starts programs as services, which this run's GPU does not reach; write " +
             "gpurun in the service: " + name + " ... gpurun ... -- PROGRAM";
    case Where::kLater:
      return name + " starts programs later, when this run is over; write gpurun in the command " +
             "that it is given: gpurun ... -- PROGRAM";
    case Where::kOtherUser:
      break;
  }
  return name + " starts programs as another user, without the variables that load our library; " +
         "write gpurun behind it: " + name + " gpurun ... -- PROGRAM";
}

std::optional<std::string> known(const std::string& word, bool into_containers) {
  const std::string name = base_name(word);
  const auto* const found = std::find_if(kEscapes.begin(), kEscapes.end(),
                                         [&](const Escape& each) { return each.name == name; });
  if (found == kEscapes.end()) return std::nullopt;
  if (into_containers && found->where == Where::kContainer) return std::nullopt;
  return sentence(name, found->where);
}

bool is_shell(const std::string& word) {
  constexpr std::string_view kShells[] = {"sh", "bash", "dash", "zsh", "ksh", "ash", "fish"};
  const std::string name = base_name(word);
  return std::find(std::begin(kShells), std::end(kShells), name) != std::end(kShells);
}

// The text of a shell's -c (also -lc, -ec), or null.
const std::string* shell_string(const Words& command) {
  if (command.empty() || !is_shell(command[0])) return nullptr;
  for (std::size_t at = 1; at + 1 < command.size(); ++at) {
    const std::string& word = command[at];
    if (word.size() < 2 || (word[0] != '-' && word[0] != '+')) return nullptr;  // A script's name.
    const bool is_long = word[1] == '-';
    if (word[0] == '-' && !is_long && word.find('c') != std::string::npos) return &command[at + 1];
    if (word == "-o" || word == "+o") ++at;
  }
  return nullptr;
}

// The simple commands of a shell's text, split at separators outside of quotes. Quoted text stays
// one word, and expansions are not done.
class ShellText {
 public:
  explicit ShellText(const std::string& text) {
    for (const char letter : text) take(letter);
    end_command();
  }
  const std::vector<Words>& commands() const { return commands_; }

 private:
  void take(char letter) {
    if (escaped_) {
      word_ += letter;
      in_word_ = true;
      escaped_ = false;
    } else if (quote_ != '\0') {
      if (letter == quote_) {
        quote_ = '\0';
      } else {
        word_ += letter;
      }
    } else if (letter == '\\') {
      escaped_ = true;
    } else if (letter == '\'' || letter == '"') {
      quote_ = letter;
      in_word_ = true;
    } else if (letter == ' ' || letter == '\t') {
      end_word();
    } else if (std::string_view(";&|()\n`").find(letter) != std::string_view::npos) {
      end_command();
    } else {
      word_ += letter;
      in_word_ = true;
    }
  }
  void end_word() {
    if (in_word_) words_.push_back(word_);
    word_.clear();
    in_word_ = false;
  }
  void end_command() {
    end_word();
    if (!words_.empty()) commands_.push_back(words_);
    words_.clear();
  }

  std::vector<Words> commands_;
  Words words_;
  std::string word_;
  char quote_ = '\0';
  bool in_word_ = false, escaped_ = false;
};

// Removes assignments, and the shell's own words before a command.
Words without_prefix(const Words& command) {
  constexpr std::string_view kShellWords[] = {"exec",  "command", "then", "do", "else", "if",
                                              "while", "until",   "time", "{",  "!",    "eval"};
  std::size_t at = 0;
  while (at < command.size() &&
         (std::find(std::begin(kShellWords), std::end(kShellWords), command[at]) !=
              std::end(kShellWords) ||
          (command[at].find('=') != std::string::npos && command[at].find('=') > 0 &&
           command[at].find('/') > command[at].find('=')))) {
    ++at;
  }
  return Words(command.begin() + static_cast<std::ptrdiff_t>(at), command.end());
}

std::optional<std::string> escape_within(const Words& command, bool into_containers, int depth) {
  if (command.empty() || depth > kDeep) return std::nullopt;
  if (auto found = known(command[0], into_containers)) return found;
  if (const std::string* text = shell_string(command); text != nullptr) {
    const ShellText shell(*text);
    for (const Words& each : shell.commands()) {
      if (auto found = escape_within(without_prefix(each), into_containers, depth + 1))
        return found;
    }
    return std::nullopt;
  }
  const auto launched = launched_by(command);
  if (!launched.ok() || !launched->has_value()) return std::nullopt;
  return escape_within(**launched, into_containers, depth + 1);
}

}  // namespace

std::optional<std::string> escape_of(const Words& command, bool into_containers) {
  return escape_within(command, into_containers, 0);
}

}  // namespace gpurun::tools
