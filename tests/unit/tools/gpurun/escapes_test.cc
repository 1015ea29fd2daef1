// Escapes: gpurun warns about programs that start others outside its reach, and about no other
// command.
#include "tools/gpurun/escapes.h"

#include <gtest/gtest.h>

#include "tools/gpurun/foreign_words.h"

namespace gpurun::tools {
namespace {

// The program that the warning names. "-": no warning.
std::string named(const Words& command) {
  const auto found = escape_of(command);
  return found ? found->substr(0, found->find(' ')) : "-";
}

TEST(Escapes, ProgramsAreRecognizedByName) {
  for (const char* name : {"tmux", "screen", "ssh", "docker", "podman", "systemd-run", "srun", "at",
                           "batch", "su", "kubectl", "sbatch"}) {
    EXPECT_EQ(named({name, "x"}), name);
    EXPECT_EQ(named({std::string("/usr/bin/") + name}), name);
    EXPECT_EQ(named({"env", "A=1", "nice", "-n", "5", name, "x"}), name);
    EXPECT_EQ(named({"sh", "-c", std::string("cd /tmp && ") + name + " x"}), name);
  }
}

TEST(Escapes, SimpleShellCommandsAreParsed) {
  EXPECT_EQ(named({"bash", "-lc", "A=1 exec nohup tmux new -d prog"}), "tmux");
  EXPECT_EQ(named({"sh", "-e", "-c", "if true; then\n ssh host prog\nfi"}), "ssh");
  EXPECT_EQ(named({"bash", "-o", "pipefail", "-c", "prog | (docker run x)"}), "docker");
  EXPECT_EQ(named({"sh", "-c", "sh -c 'srun prog'"}), "srun");
  EXPECT_EQ(named({"sh", "-c", "echo \"; ssh host\" 'docker run'"}), "-");
  EXPECT_EQ(named({"sh", "-c", "cat ssh docker"}), "-");
  EXPECT_EQ(named({"sh", "script", "-c", "ssh host"}), "-");
  EXPECT_EQ(named({"sh", "-c"}), "-");
  EXPECT_EQ(named({"sh", "-c", "'unended ssh"}), "-");
}

TEST(Escapes, OtherProgramsGetNoWarning) {
  for (const Words& command :
       {Words{}, Words{"python", "ssh"}, Words{"./tmux.py"}, Words{"sshd"}, Words{"env"},
        Words{"make", "docker"}, Words{"timeout", "5", "prog", "at"}}) {
    EXPECT_EQ(named(command), "-");
  }
}

TEST(ForeignWords, SuggestReplacementCommands) {
  EXPECT_NE(instead_of({"list_gpus"}).find("gpuctl list"), std::string::npos);
  EXPECT_NE(instead_of({"smi"}).find("gpuctl list"), std::string::npos);
  EXPECT_NE(instead_of({"run", "-n", "1"}).find("gpurun -n 1 -- PROGRAM"), std::string::npos);
  EXPECT_NE(instead_of({"lst_gpus"}).find("gpuctl list"), std::string::npos);
  EXPECT_EQ(instead_of({"logn"}), "; did you mean gpurun login?");
  EXPECT_EQ(instead_of({"train.py"}), "");
  EXPECT_EQ(instead_of({"./run"}), "");
}

}  // namespace
}  // namespace gpurun::tools
