// Command suggestion: "did you mean" offers the intended word for a misspelt one, and nothing for
// an unrelated one.
#include "base/command_suggestion.h"

#include <gtest/gtest.h>

namespace gpurun {
namespace {

std::string nearest(const char* word) {
  return nearest_word(word, {"--device", "--timeout", "--server-fingerprint", "--secret-file",
                             "list", "report", "revoke", "-n"});
}

TEST(CommandSuggestion, SuggestsIntendedWordForMisspelling) {
  EXPECT_EQ(nearest("--devise"), "--device");
  EXPECT_EQ(nearest("-device"), "--device");
  EXPECT_EQ(nearest("--tiemout"), "--timeout");
  EXPECT_EQ(nearest("lisz"), "list");
  EXPECT_EQ(nearest("lists"), "list");
  EXPECT_EQ(nearest("reporq"), "report");
  EXPECT_EQ(nearest("--server"), "--server-fingerprint");  // The one with this beginning.
}

TEST(CommandSuggestion, SuggestsNothingForUnrelatedWord) {
  for (const char* word : {"", "-", "--", "-x", "ls", "--fast", "gather", "--se-", "re"}) {
    EXPECT_EQ(nearest(word), "") << word;
  }
  EXPECT_EQ(nearest(std::string(1000, 'l').c_str()), "");
  EXPECT_EQ(suggestion(""), "");
  EXPECT_EQ(suggestion("list"), "; did you mean list?");
}

}  // namespace
}  // namespace gpurun
