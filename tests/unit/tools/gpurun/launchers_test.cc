// Launchers: a command that starts another one is parsed as its own manual says. A program that
// cannot be preloaded is refused behind a launcher, too.
#include "tools/gpurun/launchers.h"

#include <gtest/gtest.h>

namespace gpurun::tools {
namespace {

// The started command, with its words joined. "-": not parsed. Or "refused".
std::string launched(const Words& command) {
  const Result<std::optional<Words>> found = launched_by(command);
  if (!found.ok()) return found.status().code() == Code::kRefused ? "refused" : "other failure";
  if (!found->has_value()) return "-";
  std::string joined;
  for (const std::string& word : **found) joined += (joined.empty() ? "" : " ") + word;
  return joined;
}

TEST(Launchers, LaunchedCommandIsFound) {
  EXPECT_EQ(launched({"env", "A=1", "B=", "prog", "x=y"}), "prog x=y");
  EXPECT_EQ(launched({"/usr/bin/env", "-u", "A", "-uB", "--unset=C", "--chdir", "/", "prog"}),
            "prog");
  EXPECT_EQ(launched({"env", "-v0", "--", "-p"}), "-p");
  EXPECT_EQ(launched({"nice", "-n", "5", "prog", "-n"}), "prog -n");
  EXPECT_EQ(launched({"nice", "-5", "nohup", "prog"}), "nohup prog");
  EXPECT_EQ(launched({"timeout", "-k", "5", "--signal", "INT", "10s", "prog"}), "prog");
  EXPECT_EQ(launched({"timeout", "--foreground", "-sKILL", "10", "prog", "7"}), "prog 7");
  EXPECT_EQ(launched({"stdbuf", "-oL", "-e", "0", "prog"}), "prog");
  EXPECT_EQ(launched({"setsid", "-w", "prog"}), "prog");
}

TEST(Launchers, OtherAndUnparsableCommandsAreIgnored) {
  for (const Words& command :
       {Words{}, Words{"prog", "sudo"}, Words{"env"}, Words{"env", "A=1"},
        Words{"env", "-S", "sudo x"}, Words{"timeout", "5"}, Words{"nice", "-n"},
        Words{"echo", "env", "-i", "x"}, Words{"env", "-i"}}) {
    EXPECT_EQ(launched(command), "-");
  }
}

TEST(Launchers, DroppedEnvironmentIsRefused) {
  for (const char* word : {"-i", "-", "--ignore-environment", "-iu", "-0i"}) {
    Words command = {"env", word};
    if (command[1] == "-iu") command.emplace_back("A");
    command.insert(command.end(), {"A=1", "prog"});
    EXPECT_EQ(launched(command), "refused") << word;
  }
  EXPECT_EQ(launched({"env", "-u", "-i", "prog"}), "prog");  // A variable of that name.
}

TEST(Launchers, EachProgramOfCommandIsChecked) {
  const std::string path = "/usr/bin:/bin";
  EXPECT_TRUE(can_be_preloaded("/usr/bin/env", {"env", "nice", "true"}, path, "").ok());
  const Status status =
      can_be_preloaded("/usr/bin/env", {"env", "nice", "env", "-i", "true"}, path, "");
  EXPECT_EQ(status.code(), Code::kRefused);
  // It is missing, and the launcher itself will report that.
  EXPECT_TRUE(can_be_preloaded("/usr/bin/env", {"env", "no-such-program"}, path, "").ok());
}

}  // namespace
}  // namespace gpurun::tools
