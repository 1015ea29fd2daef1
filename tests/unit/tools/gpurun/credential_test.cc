// Credentials: a server gets the credential that the user names, otherwise the one stored for that
// server, and never one that others may read. The tests use their own user folders.
#include "tools/gpurun/credential.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "base/unique_fd.h"
#include "tools/gpurun/secret.h"

namespace gpurun::tools {
namespace {

class CredentialTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/gpurun-credential-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder_ = name;
    setenv("XDG_CONFIG_HOME", name, 1);
    setenv("XDG_RUNTIME_DIR", name, 1);
    unsetenv(kTokenFileVariable);
    unsetenv("GPURUN_SECRET_FILE");
    std::filesystem::create_directories(folder_ + "/gpurun/tokens");
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  static protocol::Token token(std::uint8_t number) {
    protocol::Token token;
    token.id.fill(number);
    return token;
  }
  std::string write(const std::string& name, const std::string& text, mode_t mode = 0600) {
    const std::string path = folder_ + "/gpurun/" + name;
    const UniqueFd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600));
    EXPECT_EQ(::write(fd.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
    EXPECT_EQ(fchmod(fd.get(), mode), 0);
    return path;
  }
  std::string keep(const std::string& name, std::uint8_t number) {
    return write(name, protocol::format_token(token(number)) + "\n");
  }
  // 0: no credential.
  static int number_of(const Result<Credential>& credential) {
    EXPECT_TRUE(credential.ok()) << credential.status().to_string();
    return credential.ok() && credential->token ? credential->token->id[0] : 0;
  }
  std::string folder_;
};

TEST_F(CredentialTest, FindsMostSpecificTokenOfServer) {
  EXPECT_TRUE(found_credential("host:4790")->empty());
  const std::string all = keep("token", 1);
  EXPECT_EQ(number_of(found_credential("host:4790")), 1);
  EXPECT_EQ(found_credential("host:4790")->file, all);
  keep("tokens/host", 2);
  EXPECT_EQ(number_of(found_credential("host:4790")), 2);
  keep("tokens/host:4790", 3);
  EXPECT_EQ(number_of(found_credential("host:4790")), 3);
  EXPECT_EQ(number_of(found_credential("host")), 3);
  EXPECT_EQ(number_of(found_credential("host:1")), 2);
  EXPECT_EQ(number_of(found_credential("other:4790")), 1);
  keep("tokens/[::1]:4790", 4);
  EXPECT_EQ(number_of(found_credential("[::1]:4790")), 4);
  // A name cannot lead out of the folder.
  EXPECT_EQ(number_of(found_credential("..:4790")), 1);
}

TEST_F(CredentialTest, OptionOverridesEnvironment) {
  EXPECT_TRUE(named_credential("", "")->empty());
  const std::string named = keep("named", 5);
  const std::string secret = write("secret", "sixteen bytes at least");
  EXPECT_EQ(number_of(named_credential(named, "")), 5);
  EXPECT_EQ(named_credential("", secret)->secret.size(), 22u);
  EXPECT_EQ(named_credential(named, secret).status().code(), Code::kInvalidArgument);
  setenv(kTokenFileVariable, named.c_str(), 1);
  EXPECT_EQ(number_of(named_credential("", "")), 5);
  // A command-line word overrides the environment.
  EXPECT_FALSE(named_credential("", secret)->token.has_value());
  setenv("GPURUN_SECRET_FILE", secret.c_str(), 1);
  EXPECT_EQ(named_credential("", "").status().code(), Code::kInvalidArgument);
}

TEST_F(CredentialTest, ErrorHidesTokenGivenAsFileName) {
  const std::string given = protocol::format_token(token(1));
  const std::string secret = "3f786850e387550fdab836ed7e6dc881";
  const auto told = [](const Result<Credential>& named, const char* origin) {
    EXPECT_EQ(named.status().code(), Code::kInvalidArgument);
    EXPECT_NE(named.status().message().find(origin), std::string::npos) << named.status().message();
    EXPECT_NE(named.status().message().find("takes the name of a file"), std::string::npos);
    return named.status().message();
  };
  EXPECT_EQ(told(named_credential(given, ""), "--token-file").find("gpurun1_"), std::string::npos);
  EXPECT_EQ(told(named_credential("", secret), "--secret-file").find("3f78"), std::string::npos);
  EXPECT_EQ(named_credential(given, secret).status().message().find("gpurun1_"), std::string::npos);
  setenv(kTokenFileVariable, given.c_str(), 1);
  EXPECT_EQ(told(named_credential("", ""), kTokenFileVariable).find("gpurun1_"), std::string::npos);
  unsetenv(kTokenFileVariable);
  setenv(kSecretFileVariable, secret.c_str(), 1);
  EXPECT_EQ(told(named_credential("", ""), kSecretFileVariable).find("3f78"), std::string::npos);
  // The message shows the name of the file.
  const auto missing = named_credential(folder_ + "/a-file-that-is-not-there", "");
  EXPECT_NE(missing.status().message().find("a-file-that-is-not-there"), std::string::npos);
}

TEST_F(CredentialTest, RefusesInvalidCredentialFiles) {
  write("token", protocol::format_token(token(1)), 0640);
  EXPECT_EQ(found_credential("host").status().code(), Code::kRefused);
  for (const std::string& text :
       {std::string(), std::string("no token"), protocol::format_token(token(1)).substr(0, 50),
        std::string(10'000, 'g')}) {
    write("token", text);
    const auto found = found_credential("host");
    EXPECT_EQ(found.status().code(), Code::kInvalidArgument) << text.size();
    EXPECT_NE(found.status().message().find("/gpurun/token: "), std::string::npos);
  }
  EXPECT_FALSE(named_credential("/no/such/file", "").ok());
  EXPECT_FALSE(named_credential(folder_, "").ok());
}

}  // namespace
}  // namespace gpurun::tools
