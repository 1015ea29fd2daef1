// Suggestions for misspelt words of a command line: "; did you mean --device?".
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gpurun {

// Returns the candidate that `word` is a misspelling of. If just one candidate begins with `word`,
// it is that one. If not, it is the one at the smallest distance, which is at most a third of the
// word. The distance counts letters added, lost, replaced, or swapped with a neighbour. Empty:
// there is no such candidate, or the word has fewer than three letters.
std::string nearest_word(std::string_view word, const std::vector<std::string>& candidates);

// "; did you mean WORD?", or "" for an empty word.
std::string suggestion(const std::string& word);

// Returns the suggestion for the first unknown option or subcommand in `argv`. `app` is the parser,
// a CLI::App, which this header does not need a declaration of.
template <typename App>
std::string did_you_mean(const App& app, int argc, const char* const* argv) {
  const App* command = &app;
  for (int index = 1; index < argc; ++index) {
    const std::string word = argv[index];
    if (word == "--") return "";
    std::vector<std::string> names;
    if (word.size() > 1 && word[0] == '-') {
      const std::string name = word.substr(0, word.find('='));
      if (const auto* option = command->get_option_no_throw(name); option != nullptr) {
        if (name == word && option->get_items_expected_max() > 0) ++index;
        continue;
      }
      for (const auto* option : command->get_options()) {
        if (option->get_group().empty()) continue;  // Hidden.
        for (const std::string& each : option->get_lnames()) names.push_back("--" + each);
      }
      return suggestion(nearest_word(name, names));
    }
    const auto subcommands = command->get_subcommands([](const App*) { return true; });
    if (subcommands.empty()) continue;
    const App* next = nullptr;
    for (const App* each : subcommands) {
      names.push_back(each->get_name());
      if (each->get_name() == word) next = each;
    }
    if (next == nullptr) return suggestion(nearest_word(word, names));
    command = next;
  }
  return "";
}

}  // namespace gpurun
