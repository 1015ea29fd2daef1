// Server list: which servers a file, a variable and the default places name. An invalid file is an
// error with its line. The tests use their own files.
#include "tools/gpurun/server_list.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "tools/gpurun/default_servers.h"

namespace gpurun::tools {
namespace {

class ServerListTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/gpurun-servers-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder_ = name;
    setenv("XDG_CONFIG_HOME", name, 1);
    unsetenv(kServersVariable);
    std::filesystem::create_directories(folder_ + "/gpurun");
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& text) {
    const std::string path = folder_ + "/" + name;
    std::ofstream(path) << text;
    return path;
  }
  // The servers with blanks between, or the message without the folder.
  std::string read(const std::string& text) {
    const std::string path = write("file", text);
    const Result<ServerList> list = read_servers_file(path);
    if (list.ok()) return joined(*list);
    const std::string& message = list.status().message();
    EXPECT_EQ(list.status().code(), Code::kInvalidArgument);
    EXPECT_EQ(message.compare(0, path.size(), path), 0) << message;
    return message.substr(path.size());
  }
  static std::string joined(const ServerList& list) {
    std::string text = list.none ? "none" : "";
    for (const Address& each : list.servers) text += (text.empty() ? "" : " ") + each.to_string();
    return text;
  }
  std::string defaults() {
    const Result<DefaultServers> found = default_servers(folder_ + "/system");
    if (!found.ok()) return found.status().message();
    return joined(found->list) + " of " + found->origin;
  }
  std::string folder_;
};

TEST_F(ServerListTest, ReadsOneServerPerLine) {
  EXPECT_EQ(read("# ours\r\n a \r\n\nb:1 # the old one\n[::1]:2\n"), "a:4790 b:1 [::1]:2");
  EXPECT_EQ(read("# nothing\n"), "");
  EXPECT_EQ(read(" none # here\n"), "none");
  EXPECT_EQ(read("none:4790\n"), "none:4790");
  EXPECT_EQ(read("a\nnone\n"), ":2: 'none' and servers are in one list");
  EXPECT_EQ(read("a\nb,c\n"), ":2: write one server a line, no commas");
  EXPECT_EQ(read("a\n\nb:x\n"), ":3: 'b:x': the port is a number from 1 to 65535");
  EXPECT_EQ(read("servers:4790\n"), "servers:4790");  // A host with that name.
}

// Otherwise a resolver, and everyone on its network path, would learn the token.
TEST_F(ServerListTest, RefusesTokenAsServerWithoutEcho) {
  const std::string token = "gpurun1_0123456789ab_0123456789abcdef0123456789abcdef";
  for (const std::string& text :
       {token, " " + token, token + ":1", "[" + token + "]", "TOKEN=" + token, "login," + token,
        std::string("GPURUN1_0123"), std::string("gpurun1_")}) {
    const Result<ServerList> list = parse_server_list(text);
    ASSERT_FALSE(list.ok()) << text;
    EXPECT_NE(list.status().message().find("a token is in the place of"), std::string::npos)
        << text;
    EXPECT_EQ(list.status().message().find("0123"), std::string::npos) << text;
  }
  EXPECT_EQ(read("a\n" + token + "\n").find(":2: a token is in the place of"), 0u);
  EXPECT_EQ(read("gpurun1\ngpurun1.example:7\n"), "gpurun1:4790 gpurun1.example:7");
}

TEST_F(ServerListTest, ReadsBitfusionFile) {
  EXPECT_EQ(read("servers:\n- reachable: 10.1.2.3:56001\n  addresses:\n  - 10.1.2.3:56001\n"
                 "  - 10.9.9.9:56001\n- addresses:\n  - \"b:7\"\n  - 'c'\n"),
            "10.1.2.3:56001 b:7 c:4790");
  // Like files in use: without the blank, indented, with comments and keys of other versions.
  EXPECT_EQ(read("---\n# made by a script\nservers:\n  - reachable:10.1.2.3:56001 # works\n"
                 "    name: one\n    addresses:\n      - 10.1.2.3:56001\n"
                 "other:\n  key: value\n"),
            "10.1.2.3:56001");
  EXPECT_EQ(read("servers:\n- addresses: [a:1, \"b:2\"]\n"), "a:1 b:2");
  EXPECT_EQ(read("servers:\n- a:1\n- b:2\n"), "a:1 b:2");
  EXPECT_EQ(read("servers: []\n"), "");
  EXPECT_EQ(read("servers:\n-\n  addresses:\n  - a:1\n"), "a:1");
  EXPECT_EQ(read("servers:\n- reachable: a:x\n"),
            ":2: 'a:x': the port is a number from 1 to 65535");
  EXPECT_EQ(read("servers:\n- name: one\n- addresses:\n  - a\n"), ":2: this server has no address");
  EXPECT_EQ(read("servers:\n- addresses: a\n"), ":2: addresses: must be followed by a list");
  EXPECT_EQ(read("servers:\n- a\nnonsense\n"),
            ":3: 'nonsense' is neither a key nor an entry of a list");
  EXPECT_EQ(read("servers:\n\t- a\n"), ":2: a tab cannot indent here; use blanks");
}

TEST_F(ServerListTest, MostSpecificPlaceNamesDefaultServers) {
  EXPECT_EQ(defaults(), " of ");
  write("system", "of-all\n");
  EXPECT_EQ(defaults(), "of-all:4790 of " + folder_ + "/system");
  write("gpurun/servers", "# nothing yet\n");
  EXPECT_EQ(defaults(), "of-all:4790 of " + folder_ + "/system");
  write("gpurun/servers", "mine:1\n");
  EXPECT_EQ(defaults(), "mine:1 of " + folder_ + "/gpurun/servers");
  setenv(kServersVariable, "a,b", 1);
  EXPECT_EQ(defaults(), "a:4790 b:4790 of GPURUN_SERVERS");
  setenv(kServersVariable, "none", 1);
  EXPECT_EQ(defaults(), "none of GPURUN_SERVERS");
  setenv(kServersVariable, "a:", 1);
  EXPECT_EQ(defaults(), "GPURUN_SERVERS: 'a:' has no port after the colon");
  setenv(kServersVariable, "", 1);
  write("gpurun/servers", "mine:1\nmine 2\n");
  EXPECT_EQ(defaults(), folder_ + "/gpurun/servers:2: 'mine 2' names no host");
}

TEST_F(ServerListTest, NewDefaultKeepsOtherServersAndComments) {
  const std::string path = folder_ + "/gpurun/servers";
  const auto text = [&] {
    std::ifstream file(path);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  const auto make = [&](const char* server) { return make_default(path, *parse_address(server)); };
  ASSERT_TRUE(make("a").ok());
  EXPECT_EQ(text(), "a:4790\n");
  write("gpurun/servers", "# ours\nb\nnone-of-these\na # the first\n");
  ASSERT_TRUE(make("a").ok());
  EXPECT_EQ(text(), "a:4790\n# ours\nb\nnone-of-these\n");
  write("gpurun/servers", "none # this machine\n");
  ASSERT_TRUE(make("a").ok());
  EXPECT_EQ(text(), "a:4790\n");
  write("gpurun/servers", "servers:\n- addresses:\n  - b:1\n  - a\n");
  ASSERT_TRUE(make("a").ok());
  EXPECT_EQ(text(), "a:4790\nb:1\n");
  write("gpurun/servers", "b c\n");
  EXPECT_FALSE(make("a").ok());
  EXPECT_EQ(text(), "b c\n");
  struct stat about = {};
  ASSERT_EQ(stat(path.c_str(), &about), 0);
  write("gpurun/servers", "b\n");
  ASSERT_TRUE(make("a").ok());
  ASSERT_EQ(stat(path.c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 07777, 0600u);
}

}  // namespace
}  // namespace gpurun::tools
