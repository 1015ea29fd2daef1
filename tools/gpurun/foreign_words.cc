// Foreign words: the subcommands of Bitfusion and of gpuctl.
#include "tools/gpurun/foreign_words.h"

#include <array>
#include <string_view>

#include "base/command_suggestion.h"

namespace gpurun::tools {
namespace {

struct Foreign {
  std::string_view word;
  std::string_view instead;
};
constexpr auto kForeign = std::to_array<Foreign>({
    {"run", "the program follows the options: gpurun -n 1 -- PROGRAM"},
    {"client", "the program follows the options: gpurun -n 1 -- PROGRAM"},
    {"list_gpus", "gpuctl list shows the servers' GPUs"},
    {"list", "gpuctl list shows the servers' GPUs"},
    {"smi", "gpuctl list shows the servers' GPUs, and gpurun -- nvidia-smi those of a lease"},
    {"top", "gpuctl list shows the servers' GPUs and their holders"},
    {"health", "gpuctl report writes down what is here and what the servers answer"},
    {"request_gpus", "a lease lasts as long as its program: gpurun -n 1 -- bash"},
    {"release_gpus", "a lease ends with its program"},
    {"server", "gpurund lends this machine's GPUs"},
    {"daemon", "gpurund lends this machine's GPUs"},
    {"report", "that is gpuctl report"},
    {"trace", "gpurun --trace FOLDER records, and gpuctl trace shows it"},
    {"token", "that is gpuctl token"},
    {"tokens", "that is gpuctl token"},
    {"logout", "remove the file of the token in ~/.config/gpurun/tokens"},
    {"help", "that is gpurun --help"},
    {"version", "that is gpurun --version"},
});

}  // namespace

std::string instead_of(const std::vector<std::string>& command) {
  const std::string& word = command[0];
  for (const Foreign& each : kForeign) {
    if (each.word == word) {
      return "; gpurun has no subcommand " + word + ": " + std::string(each.instead);
    }
  }
  std::vector<std::string> words = {"login"};
  for (const Foreign& each : kForeign) words.emplace_back(each.word);
  if (word.find('/') != std::string::npos) return "";
  const std::string meant = nearest_word(word, words);
  if (meant.empty()) return "";
  if (meant == "login") return "; did you mean gpurun login?";
  return instead_of({meant});
}

}  // namespace gpurun::tools
