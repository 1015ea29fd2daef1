// User tokens: a cut or mistyped line is detected and never echoed. A proof is valid only for its
// own link. The file of tokens is trusted only if nobody else could have written or read it.
#include "protocol/auth/token.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "base/hex.h"
#include "protocol/auth/token_file.h"

namespace gpurun::protocol {
namespace {

Token sample(bool with_server = false) {
  Token token;
  token.id.fill(0xab);
  for (std::size_t i = 0; i < token.secret.size(); ++i) {
    token.secret[i] = static_cast<std::uint8_t>(i);
  }
  if (with_server) token.server.emplace().fill(7);
  return token;
}

TokenEntry entry_of(std::uint8_t number, const std::string& user) {
  TokenEntry entry;
  entry.id.fill(number);
  entry.user = user;
  entry.check = token_check(sample().secret);
  entry.made = 1'790'000'000;
  return entry;
}

TEST(TokenLine, RoundTripsToken) {
  for (const bool with_server : {false, true}) {
    const std::string text = format_token(sample(with_server));
    EXPECT_LE(text.size(), kTokenTextBytesMax);
    EXPECT_EQ(text.size() == kTokenTextBytesMax, with_server);
    for (const std::string& pasted : {text, text + "\n", "  " + text + " \r\n"}) {
      const auto token = parse_token(pasted);
      ASSERT_TRUE(token.ok()) << token.status().to_string();
      EXPECT_EQ(token->id, sample().id);
      EXPECT_EQ(token->secret, sample().secret);
      EXPECT_EQ(token->server, sample(with_server).server);
    }
  }
}

TEST(TokenLine, RefusesIncompleteOrChangedLineWithoutEcho) {
  const std::string text = format_token(sample(true));
  const auto refused = [&](const std::string& wrong) {
    const auto token = parse_token(wrong);
    ASSERT_FALSE(token.ok()) << wrong;
    EXPECT_EQ(token.status().code(), Code::kInvalidArgument);
    EXPECT_EQ(token.status().message().find("00010203"), std::string::npos);
  };
  for (std::size_t length = 0; length < text.size(); ++length) refused(text.substr(0, length));
  for (std::size_t at = 0; at < text.size(); ++at) {
    std::string changed = text;
    changed[at] = changed[at] == '0' ? '1' : '0';
    refused(changed);
  }
  for (const char* no : {"", "\n", "_", "gpurun1_", "gpurun1_____", "gpurun2_00", "a secret"}) {
    refused(no);
  }
  refused(text + "0");
  refused(text + "\n" + text);
}

TEST(TokenLine, NewTokensDiffer) {
  const auto first = make_token(std::nullopt);
  const auto second = make_token(std::nullopt);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_NE(first->id, second->id);
  EXPECT_NE(first->secret, second->secret);
}

TEST(TokenProof, IsValidOnlyForItsLink) {
  const Token token = sample();
  const Key check = token_check(token.secret);
  EXPECT_NE(check, token.secret);
  Nonce server, client;
  server.fill(1);
  client.fill(2);
  const Key masked = mask_token(token.secret, server, client, token.id);
  EXPECT_NE(masked, token.secret);
  EXPECT_EQ(unmask_token(masked, check, server, client, token.id), token.secret);
  const auto changed = [](auto array) {
    array.back() ^= 1;
    return array;
  };
  // Repeated on another link, for another token, altered, or made from the server's stored check
  // alone.
  EXPECT_FALSE(unmask_token(masked, check, changed(server), client, token.id));
  EXPECT_FALSE(unmask_token(masked, check, server, changed(client), token.id));
  EXPECT_FALSE(unmask_token(masked, check, server, client, changed(token.id)));
  EXPECT_FALSE(unmask_token(changed(masked), check, server, client, token.id));
  EXPECT_FALSE(unmask_token(masked, changed(check), server, client, token.id));
  EXPECT_FALSE(
      unmask_token(mask_token(check, server, client, token.id), check, server, client, token.id));
}

TEST(TokenFileText, RoundTripsEntries) {
  std::vector<TokenEntry> entries = {entry_of(1, "anna"), entry_of(2, "ben@example.org")};
  entries[1].state = TokenState::kRetired;
  entries[1].expires = 5;
  entries[1].used = 6;
  entries[1].ended = 7;
  entries[1].note = "laptop,  the old one";
  const std::string text = format_token_file(entries);
  EXPECT_EQ(text.find(hex_of(bytes_of(sample().secret))), std::string::npos);
  const auto read = parse_token_file(text);
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  ASSERT_EQ(read->size(), 2u);
  EXPECT_EQ((*read)[1].note, entries[1].note);
  EXPECT_EQ(format_token_file(*read), text);
}

TEST(TokenFileText, ErrorNamesInvalidLine) {
  const std::string good = format_token_file({entry_of(1, "anna")});
  const std::string line = good.substr(good.find("0101"));
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = line;
    text.replace(text.find(from), from.size(), to);
    return good + text;
  };
  for (const auto& [text, named] : std::vector<std::pair<std::string, std::string>>{
           {good + line, "line 4: names a token a second time"},
           {with("0101", "01"), "line 4: begins with no token's id"},
           {with("anna", "../../etc"), "line 4: a user's name"},
           {with("anna", kOperator), "line 4: 'operator'"},
           {with("valid", "perhaps"), "line 4: has no state"},
           {with("1790000000", "-1"), "line 4: lacks"},
           {with("1790000000", "99999999999999999999"), "line 4: lacks"},
           {with(" 0 0 0 ", " 0 0 0 a\x1b[2J"), "line 4: a note"},
           {"half a li", "line 1: "}}) {
    const auto read = parse_token_file(text);
    ASSERT_FALSE(read.ok()) << text;
    EXPECT_TRUE(read.status().message().starts_with(named)) << read.status().message();
  }
}

TEST(TokenFileText, BoundsNumberOfTokens) {
  std::vector<TokenEntry> entries(kTokensMax, entry_of(0, "anna"));
  for (std::size_t i = 0; i < entries.size(); ++i) {
    entries[i].id[0] = static_cast<std::uint8_t>(i >> 8);
    entries[i].id[1] = static_cast<std::uint8_t>(i);
  }
  EXPECT_TRUE(parse_token_file(format_token_file(entries)).ok());
  EXPECT_LE(format_token_file(entries).size() + kTokensMax * kTokenNoteBytesMax,
            kTokenFileBytesMax);
  entries.push_back(entry_of(0xff, "anna"));
  EXPECT_FALSE(parse_token_file(format_token_file(entries)).ok());
}

TEST(UserNames, AreSafeInPathsAndLines) {
  for (const char* name : {"anna", "a", "Ben.O_Neil-2@example.org", "007"}) {
    EXPECT_TRUE(check_user(name).ok()) << name;
  }
  for (const std::string& name :
       {std::string(), std::string("."), std::string(".."), std::string("-x"), std::string("a/b"),
        std::string("a b"), std::string("a\n"), std::string("\u00e4"), std::string(kOperator),
        std::string(kUserBytesMax + 1, 'a')}) {
    EXPECT_FALSE(check_user(name).ok()) << name;
  }
}

class TokenFileOnDisk : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/gpurun-tokens-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder_ = name;
    path_ = folder_ + "/state/gpurun/tokens";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  Status add(std::uint8_t number) {
    return update_token_file(path_, [number](auto* entries) {
      entries->push_back(entry_of(number, "anna"));
      return Status();
    });
  }
  std::string folder_, path_;
};

TEST_F(TokenFileOnDisk, IsPrivateAndReplacedAtomically) {
  EXPECT_EQ(read_token_file(path_)->size(), 0u);
  EXPECT_EQ(token_file_stamp(path_), FileStamp());
  ASSERT_TRUE(add(1).ok());
  struct stat about = {};
  ASSERT_EQ(stat(path_.c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 07777, 0600u);
  ASSERT_EQ(stat((folder_ + "/state").c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 07777, 0700u);
  const FileStamp first = token_file_stamp(path_);
  // A concurrent reader keeps the whole old file.
  std::ifstream before(path_);
  ASSERT_TRUE(add(2).ok());
  EXPECT_NE(token_file_stamp(path_), first);
  const std::string old{std::istreambuf_iterator<char>(before), {}};
  EXPECT_EQ(parse_token_file(old)->size(), 1u);
  EXPECT_EQ(read_token_file(path_)->size(), 2u);
  // A change that returns an error leaves everything unchanged.
  const Status no =
      update_token_file(path_, [](auto*) { return Status(Code::kInvalidArgument, "on purpose"); });
  EXPECT_EQ(no.message(), "on purpose");
  EXPECT_EQ(read_token_file(path_)->size(), 2u);
}

TEST_F(TokenFileOnDisk, ConcurrentWritersKeepAllTokens) {
  std::vector<std::thread> writers;
  for (std::uint8_t number = 1; number <= 8; ++number) {
    writers.emplace_back([this, number] { EXPECT_TRUE(add(number).ok()); });
  }
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(read_token_file(path_)->size(), 8u);
}

TEST_F(TokenFileOnDisk, RefusesUnsafeModesLinksAndFolders) {
  ASSERT_TRUE(add(1).ok());
  ASSERT_EQ(chmod(path_.c_str(), 0640), 0);
  EXPECT_EQ(read_token_file(path_).status().code(), Code::kRefused);
  EXPECT_EQ(add(2).code(), Code::kRefused);
  ASSERT_EQ(chmod(path_.c_str(), 0600), 0);
  ASSERT_TRUE(add(2).ok());
  const std::string parent = folder_ + "/state/gpurun";
  ASSERT_EQ(chmod(parent.c_str(), 0777), 0);
  EXPECT_EQ(add(3).code(), Code::kRefused);
  ASSERT_EQ(chmod(parent.c_str(), 0700), 0);
  ASSERT_EQ(rename(path_.c_str(), (path_ + ".moved").c_str()), 0);
  ASSERT_EQ(symlink((path_ + ".moved").c_str(), path_.c_str()), 0);
  EXPECT_EQ(read_token_file(path_).status().code(), Code::kRefused);
  EXPECT_EQ(add(3).code(), Code::kRefused);
  ASSERT_EQ(unlink(path_.c_str()), 0);
  ASSERT_EQ(mkdir(path_.c_str(), 0700), 0);
  EXPECT_EQ(read_token_file(path_).status().code(), Code::kRefused);
  EXPECT_EQ(update_token_file("tokens", [](auto*) { return Status(); }).code(),
            Code::kInvalidArgument);
}

TEST_F(TokenFileOnDisk, RootWritesFileOwnedByFolderOwner) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to make another user's file";
  ASSERT_TRUE(add(1).ok());
  // Root writes for another user's daemon, in that user's folder.
  const std::string parent = folder_ + "/state/gpurun";
  ASSERT_EQ(chown(parent.c_str(), 4711, 4711), 0);
  ASSERT_TRUE(add(2).ok());
  struct stat about = {};
  ASSERT_EQ(stat(path_.c_str(), &about), 0);
  EXPECT_EQ(about.st_uid, 4711u);
  EXPECT_EQ(read_token_file(path_)->size(), 2u);
  ASSERT_EQ(stat((path_ + ".lock").c_str(), &about), 0);
  EXPECT_EQ(about.st_uid, 4711u) << "that user's server locks it, too";
}

// The owner of the file, or of its folder, decides which tokens are valid.
TEST_F(TokenFileOnDisk, RootServerRefusesFileOfOtherUser) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to make another user's file";
  ASSERT_TRUE(add(1).ok());
  const std::string parent = folder_ + "/state/gpurun";
  EXPECT_EQ(read_token_file(path_, TokenFileUse::kServer)->size(), 1u);
  ASSERT_EQ(chown(path_.c_str(), 4711, 4711), 0);
  const Status others = read_token_file(path_, TokenFileUse::kServer).status();
  EXPECT_EQ(others.code(), Code::kRefused);
  EXPECT_NE(others.message().find("belongs to user 4711"), std::string::npos) << others.message();
  EXPECT_NE(others.message().find("chown root " + path_), std::string::npos) << others.message();
  EXPECT_EQ(read_token_file(path_).status().code(), Code::kRefused) << "nor the folder's owner's";
  ASSERT_EQ(chown(path_.c_str(), 0, 0), 0);
  ASSERT_EQ(chown(parent.c_str(), 4711, 4711), 0);
  EXPECT_EQ(read_token_file(path_, TokenFileUse::kServer).status().code(), Code::kRefused);
  EXPECT_EQ(update_token_file(
                path_, [](auto*) { return Status(); }, TokenFileUse::kServer)
                .code(),
            Code::kRefused);
  ASSERT_EQ(chown(parent.c_str(), 0, 0), 0);
  ASSERT_EQ(chmod(parent.c_str(), 0777), 0);
  EXPECT_EQ(read_token_file(path_, TokenFileUse::kServer).status().code(), Code::kRefused);
}

TEST_F(TokenFileOnDisk, RefusesLockFileReadableByOtherUsers) {
  ASSERT_TRUE(add(1).ok());
  const std::string lock = path_ + ".lock";
  struct stat about = {};
  ASSERT_EQ(stat(lock.c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 07777, 0600u);
  ASSERT_EQ(chmod(lock.c_str(), 0644), 0);
  EXPECT_EQ(add(2).code(), Code::kRefused);
  ASSERT_EQ(rename(lock.c_str(), (lock + ".moved").c_str()), 0);
  ASSERT_EQ(symlink((lock + ".moved").c_str(), lock.c_str()), 0);
  EXPECT_EQ(add(2).code(), Code::kRefused);
  ASSERT_EQ(unlink(lock.c_str()), 0);
  EXPECT_TRUE(add(2).ok());
}

}  // namespace
}  // namespace gpurun::protocol
