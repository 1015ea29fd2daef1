// Secret text: a token or secret that a user gives in place of a file name is never printed. File
// names are printed.
#include "protocol/auth/secret_text.h"

#include <gtest/gtest.h>

#include <string>

#include "protocol/auth/token.h"

namespace gpurun::protocol {
namespace {

std::string a_token() {
  Token token;
  token.id.fill(0xab);
  token.secret.fill(0x5c);
  return format_token(token);
}

TEST(SecretText, RecognizesTokensInAnyForm) {
  const std::string token = a_token();
  for (const std::string& text :
       {token, " " + token + "\n", "'" + token + "'", "TOKEN=" + token, token.substr(0, 40),
        "/etc/" + token, "GPURUN1_" + token.substr(8), "/tmp/" + token + "/x"}) {
    EXPECT_TRUE(may_be_secret(text)) << text;
  }
  // Without its prefix it is still a possible secret.
  EXPECT_TRUE(may_be_secret(token.substr(8)));
}

TEST(SecretText, RecognizesLongTextThatIsNoPath) {
  for (const char* text :
       {"3f786850e387550fdab836ed7e6dc881de23001b3f786850e387550fdab836ed",
        "correct horse battery staple", "aGVsbG8gd29ybGQsIHRoaXMgaXM=",
        "/9j4AAQSkZJRgABAQAAAQABAAD=", "0123456789abcdef", "My.Secret.Phrase1"}) {
    EXPECT_TRUE(may_be_secret(text)) << text;
  }
}

TEST(SecretText, DoesNotRecognizePaths) {
  for (const char* text :
       {"", "token", "secret.txt", "/no/such", "/etc", "./token", "../gpurun/token",
        "~/.config/gpurun/token", "/home/nobody-here/.config/gpurun/token", "/etc/gpurn/secret",
        "/usr/a-name-that-is-long-enough-for-a-secret"}) {
    EXPECT_FALSE(may_be_secret(text)) << text;
  }
}

TEST(SecretText, HidesWholeTokens) {
  const std::string token = a_token();
  EXPECT_EQ(hide_tokens("there is no option --token=" + token + "; see"),
            "there is no option --token=gpurun1_(hidden); see");
  EXPECT_EQ(hide_tokens(token + "," + token.substr(0, 50)), "gpurun1_(hidden),gpurun1_(hidden)");
  EXPECT_EQ(hide_tokens("no user token: those begin with gpurun1_"),
            "no user token: those begin with gpurun1_");
  EXPECT_EQ(hide_tokens("gpurun1_short gpurun2_" + std::string(80, 'a')),
            "gpurun1_short gpurun2_" + std::string(80, 'a'));
  EXPECT_EQ(hide_tokens(""), "");
}

}  // namespace
}  // namespace gpurun::protocol
