// Options: the meaning of the command line, and the errors that are found before anything starts.
#include "tools/gpurun/options.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

#include "protocol/limits.h"

namespace gpurun::tools {
namespace {

using namespace std::chrono_literals;

Result<Options> parse(std::vector<const char*> words) {
  words.insert(words.begin(), "gpurun");
  return parse_options(static_cast<int>(words.size()), words.data());
}

std::string complaint(std::vector<const char*> words) {
  const Result<Options> options = parse(std::move(words));
  return options.ok() ? "accepted" : options.status().message();
}

// The usual command line: each part must arrive at its place.
TEST(OptionsTest, ParsesUsualCommandLine) {
  const Result<Options> options =
      parse({"-n", "2", "-l", "192.168.30.231,[fe80::1]:99", "--timeout", "5m", "--stats", "-q",
             "--", "./sample_mnist", "-n", "9", "--", "x"});
  ASSERT_TRUE(options.ok()) << options.status().to_string();
  EXPECT_EQ(options->gpu_count, 2);
  ASSERT_EQ(options->servers.size(), 2u);
  EXPECT_EQ(options->servers[0].to_string(),
            "192.168.30.231:" + std::to_string(limits::kDefaultPort));
  EXPECT_EQ(options->servers[1].to_string(), "[fe80::1]:99");
  EXPECT_EQ(options->lease_wait, 5min);
  EXPECT_TRUE(options->stats);
  EXPECT_TRUE(options->quiet);
  EXPECT_EQ(options->command, (std::vector<std::string>{"./sample_mnist", "-n", "9", "--", "x"}));
}

TEST(OptionsTest, TransportsHaveTheWordsOfTheVariable) {
  EXPECT_EQ(parse({"--transport", "rdma,tcp", "--", "x"})->transports, "rdma,tcp");
  EXPECT_EQ(parse({"--", "x"})->transports, "");
  EXPECT_EQ(complaint({"--transport", "ib", "--", "x"}).find("--transport is 'ib': 'ib' is no"),
            0U);
  EXPECT_NE(complaint({"--transport", "", "--", "x"}).find("must be named"), std::string::npos);
  EXPECT_EQ(parse({"--trust-fabric", "--", "x"})->trusted_fabrics, "*");
  EXPECT_EQ(parse({"--trust-fabric=a:1", "--", "x"})->trusted_fabrics, "a:1");
  EXPECT_EQ(complaint({"--trust-fabric=a,,b", "--", "x"}).find("--trust-fabric: '' is not"), 0U);
}

TEST(OptionsTest, TraceTakesFolder) {
  const Result<Options> options = parse({"--trace", "run/1", "--", "./train"});
  ASSERT_TRUE(options.ok()) << options.status().to_string();
  EXPECT_EQ(options->trace_folder, "run/1");
  EXPECT_EQ(parse({"--", "./train"})->trace_folder, "");
  EXPECT_NE(complaint({"--trace", "", "--", "x"}).find("--trace: a folder"), std::string::npos);
}

// The program's own options must reach it unchanged, even without "--".
TEST(OptionsTest, OptionsEndAtProgram) {
  const Result<Options> options = parse({"-q", "python3", "-c", "print(1)", "--stats"});
  ASSERT_TRUE(options.ok()) << options.status().to_string();
  EXPECT_TRUE(options->quiet);
  EXPECT_FALSE(options->stats);
  EXPECT_EQ(options->command, (std::vector<std::string>{"python3", "-c", "print(1)", "--stats"}));
  EXPECT_EQ(options->gpu_count, 1);
  EXPECT_TRUE(options->servers.empty());
  EXPECT_EQ(options->lease_wait, 0ms);
}

// Wrong words get a message that names them, and nothing is guessed. login(1) would ask for a
// password, and receive the token.
TEST(OptionsTest, RefusesLoginAfterOptions) {
  const Result<Options> options = parse({"-q", "login", "gpu.example.org"});
  ASSERT_FALSE(options.ok());
  EXPECT_NE(options.status().message().find("gpurun login HOST"), std::string::npos);
  for (const auto& words : {std::vector<const char*>{"-q", "--", "login", "anna"},
                            std::vector<const char*>{"--", "login"}}) {
    const Result<Options> program = parse(words);
    ASSERT_TRUE(program.ok()) << program.status().to_string();
    EXPECT_EQ(program->command[0], "login");
  }
}

TEST(OptionsTest, ErrorsNameInvalidWords) {
  EXPECT_NE(complaint({"-n", "0", "--", "x"}).find("'0'"), std::string::npos);
  EXPECT_NE(complaint({"-n", "two", "--", "x"}).find("'two'"), std::string::npos);
  EXPECT_NE(complaint({"-l", "host:port", "--", "x"}).find("65535"), std::string::npos);
  EXPECT_NE(complaint({"-l", "a,,b", "--", "x"}).find("names no host"), std::string::npos);
  EXPECT_NE(complaint({"-l", "::1", "--", "x"}).find("brackets"), std::string::npos);
  EXPECT_NE(complaint({"--timeout", "5", "--", "x"}).find("30s"), std::string::npos);
  EXPECT_NE(complaint({"--device", "fast", "--", "x"}).find("'fast'"), std::string::npos);
  EXPECT_NE(complaint({"-l", "a", "--device", "real", "--", "x"}).find("private"),
            std::string::npos);
  EXPECT_NE(complaint({"-l", "a", "-s", "b", "--", "x"}).find("one of them"), std::string::npos);
  EXPECT_NE(complaint({}).find("no program"), std::string::npos);
  EXPECT_NE(complaint({"--"}).find("no program"), std::string::npos);
}

// `-l "$SERVER"` with an unset variable must not run the program on this machine instead.
TEST(OptionsTest, RefusesEmptyValues) {
  EXPECT_NE(complaint({"-l", "", "--", "x"}).find("names no host"), std::string::npos);
  EXPECT_NE(complaint({"-s", "", "--", "x"}).find("cannot read"), std::string::npos);
  EXPECT_NE(complaint({"--timeout", "", "--", "x"}).find("no duration"), std::string::npos);
  EXPECT_NE(complaint({"--device", "", "--", "x"}).find("neither"), std::string::npos);
}

// If an option of a later version were ignored, the program would run on the wrong GPU.
TEST(OptionsTest, RefusesFutureAndUnknownOptions) {
  EXPECT_NE(complaint({"-p", "0.5", "--", "x"}).find("does not exist yet"), std::string::npos);
  EXPECT_NE(complaint({"--filter", "a=b", "--", "x"}).find("does not exist yet"),
            std::string::npos);
  EXPECT_NE(complaint({"--fast", "--", "x"}).find("--fast"), std::string::npos);
}

TEST(OptionsTest, ReadsServersFileAndErrorsNameLine) {
  const std::string path = testing::TempDir() + "gpurun_servers";
  std::ofstream(path) << "# my servers\n  first:7 \n\nsecond  # old\n";
  const Result<Options> options = parse({"-s", path.c_str(), "--", "x"});
  ASSERT_TRUE(options.ok()) << options.status().to_string();
  ASSERT_EQ(options->servers.size(), 2u);
  EXPECT_EQ(options->servers[0].to_string(), "first:7");
  std::ofstream(path) << "good\nbad:0\n";
  EXPECT_NE(complaint({"-s", path.c_str(), "--", "x"}).find(path + ":2:"), std::string::npos);
  std::ofstream(path) << "# none\n";
  EXPECT_NE(complaint({"-s", path.c_str(), "--", "x"}).find("names no server"), std::string::npos);
  std::remove(path.c_str());
  EXPECT_NE(complaint({"-s", path.c_str(), "--", "x"}).find("cannot read"), std::string::npos);
}

TEST(OptionsTest, VersionAndHelpReturnText) {
  const Result<Options> version = parse({"--version"});
  ASSERT_TRUE(version.ok());
  EXPECT_EQ(version->action, Options::Action::kShowText);
  EXPECT_EQ(version->text.compare(0, 7, "gpurun "), 0);
  const Result<Options> help = parse({"--help"});
  ASSERT_TRUE(help.ok());
  EXPECT_NE(help->text.find("--timeout"), std::string::npos);
}

TEST(OptionsTest, DurationsAreBounded) {
  EXPECT_EQ(*parse_duration("250ms"), 250ms);
  EXPECT_EQ(*parse_duration("30s"), 30s);
  EXPECT_EQ(*parse_duration("720h"), 720h);
  EXPECT_EQ(*parse_duration("30d"), 720h);
  for (const char* text : {"", "s", "-1s", "1.5s", "31d", "1w", "721h", "99999999999999999999s"}) {
    EXPECT_FALSE(parse_duration(text).ok()) << text;
  }
}

}  // namespace
}  // namespace gpurun::tools
