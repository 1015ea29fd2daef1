// Users: the bounds of a user with a token, changes of the file of tokens while the daemon runs,
// and an audit log that is whole, readable, and safe against floods and forgery.
#include "server/daemon/users/users.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <sstream>
#include <thread>

#include "server/daemon/users/audit.h"
#include "server/daemon/users/server_identity.h"
#include "server/daemon/users/tokens.h"

namespace gpurun::server {
namespace {

using protocol::TokenEntry;
using protocol::TokenState;

const User kAnna{"anna", "0a0a0a0a0a0a"};
const User kAnnasOther{"anna", "0b0b0b0b0b0b"};
const User kBen{"ben", "0c0c0c0c0c0c"};

bool is_told(const UserAdmission& stay) {
  pollfd told = {stay.fd(), POLLIN, 0};
  return poll(&told, 1, 0) == 1;
}

TEST(UserRegistry, ChangedLimitsApplyOnlyToNewRequests) {
  UserRegistry book({});
  const auto there = book.enter(kAnna, 3);
  ASSERT_TRUE(there.ok());
  UserLimitsTable limits;
  limits.every.gpus = 2;
  limits.every.sessions = 1;
  book.set_limits(limits);
  EXPECT_FALSE(is_told(**there));
  EXPECT_FALSE(book.enter(kAnnasOther, 1).ok());
  EXPECT_TRUE(book.enter(kBen, 2).ok());
  EXPECT_FALSE(book.admit_session(kBen, 1).ok());
  book.set_limits({});
  EXPECT_TRUE(book.enter(kAnna, 8).ok());
  EXPECT_TRUE(book.admit_session(kBen, 1).ok());
}

TEST(UserRegistry, CloseNotifiesAllWithReason) {
  UserRegistry book({});
  const auto annas = book.enter(kAnna, 1), operators = book.enter(User(), 1);
  ASSERT_TRUE(annas.ok() && operators.ok());
  book.end(kAnna.token, "revoked");
  book.close("the server stops");
  EXPECT_TRUE(is_told(**annas));
  EXPECT_EQ((*annas)->why_ended(), "revoked");  // The first reason stays.
  EXPECT_TRUE(is_told(**operators));
  EXPECT_EQ((*operators)->why_ended(), "the server stops");
  const auto late = book.enter(User(), 1);
  EXPECT_EQ(late.status().code(), Code::kRefused);
  EXPECT_EQ(late.status().message(), "the server stops");
  EXPECT_EQ(book.room(User(), 1), Room::kNone);
}

TEST(UserRegistry, LimitsEachUserSeparately) {
  UserLimitsTable limits;
  limits.every.leases = 2;
  limits.every.gpus = 3;
  limits.by_name["ben"].leases = 1;
  UserRegistry book(limits);
  auto first = book.enter(kAnna, 1);
  ASSERT_TRUE(first.ok());
  const auto gpus = book.enter(kAnnasOther, 3);
  EXPECT_EQ(gpus.status().code(), Code::kRefused);
  EXPECT_EQ(gpus.status().message(),
            "user anna has 1 GPU and wants 3; this server allows 3 (max-gpus)");
  auto second = book.enter(kAnnasOther, 2);
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(book.enter(kAnna, 1).status().message(),
            "user anna has 2 leases, waiting requests included; this server allows 2 (max-leases)");
  // Other users have separate bounds. A user's own bounds override the common ones.
  auto bens = book.enter(kBen, 3);
  ASSERT_TRUE(bens.ok());
  EXPECT_FALSE(book.enter(kBen, 0).ok());
  auto operators = book.enter(User(), 64);
  EXPECT_TRUE(operators.ok());
  EXPECT_TRUE(book.enter(User(), 64).ok());
  *first = nullptr;
  EXPECT_TRUE(book.enter(kAnna, 1).ok());
}

// Work may still run on the GPUs of an ended lease.
TEST(UserRegistry, LeavingAdmissionCountsUntilItReturns) {
  UserLimitsTable limits;
  limits.every.gpus = 2;
  UserRegistry book(limits);
  const auto returned = std::make_shared<std::atomic<bool>>(false);
  auto stay = book.enter(kAnna, 1);
  EXPECT_EQ(book.room(kAnna, 2), Room::kIfLeasesEnd);
  EXPECT_EQ(book.room(kAnna, 3), Room::kNone);
  (*stay)->leave(returned);
  (*stay)->leave(returned);
  *stay = nullptr;
  EXPECT_FALSE(book.enter(kAnnasOther, 2).ok());
  EXPECT_EQ(book.room(kAnnasOther, 2), Room::kSoon);
  EXPECT_TRUE(book.enter(kAnna, 1).ok()) << "it counts once";
  EXPECT_TRUE(book.enter(kBen, 2).ok());
  *returned = true;
  EXPECT_TRUE(book.enter(kAnna, 2).ok());
}

TEST(UserRegistry, LimitsSessionsOfUser) {
  UserLimitsTable limits;
  limits.every.sessions = 2;
  const UserRegistry book(limits);
  EXPECT_TRUE(book.admit_session(kAnna, 1).ok());
  EXPECT_EQ(book.admit_session(kAnna, 2).message(),
            "user anna has 2 attached processes; this server allows 2 (max-sessions)");
  EXPECT_TRUE(book.admit_session(User(), 1000).ok());
  EXPECT_TRUE(UserRegistry({}).admit_session(kAnna, 1000).ok());
}

TEST(UserRegistry, EndsOnlyAdmissionsOfToken) {
  UserRegistry book({});
  const auto first = book.enter(kAnna, 1);
  const auto second = book.enter(kAnna, 1);
  const auto other = book.enter(kAnnasOther, 1);
  const auto operators = book.enter(User(), 1);
  book.end(kAnna.token, "because");
  book.end("", "no token");
  EXPECT_TRUE(is_told(**first) && is_told(**second));
  EXPECT_EQ((*first)->why_ended(), "because");
  EXPECT_FALSE(is_told(**other) || is_told(**operators));
  EXPECT_EQ((*other)->why_ended(), "");
}

class UserFilesTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/gpurun-users-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder_ = name;
    path_ = folder_ + "/tokens";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  static protocol::TokenId id(std::uint8_t number) {
    protocol::TokenId id;
    id.fill(number);
    return id;
  }
  void write(const std::function<void(std::vector<TokenEntry>*)>& change) {
    ASSERT_TRUE(protocol::update_token_file(path_, [&](auto* entries) {
                  change(entries);
                  return Status();
                }).ok());
  }
  void add(std::uint8_t number) {
    write([number](auto* entries) {
      TokenEntry entry;
      entry.id = id(number);
      entry.user = "anna";
      entries->push_back(entry);
    });
  }
  std::string text_of(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::string folder_, path_;
};

class TokenStoreTest : public UserFilesTest {};

TEST_F(TokenStoreTest, ReportsChangesOfFile) {
  TokenStore store(path_);
  EXPECT_FALSE(store.find(id(1))->has_value());
  add(1);
  EXPECT_TRUE(store.find(id(1))->has_value());
  add(2);
  add(3);
  auto changes = store.changes();
  ASSERT_EQ(changes.size(), 3u);
  EXPECT_FALSE(changes[0].ended);
  write([](auto* entries) {
    (*entries)[0].state = TokenState::kRevoked;
    (*entries)[1].state = TokenState::kRetired;
    entries->pop_back();
  });
  changes = store.changes();
  ASSERT_EQ(changes.size(), 3u);
  for (const auto& change : changes) {
    EXPECT_TRUE(change.ended);
    EXPECT_EQ(change.spared, change.entry.id == id(2));
  }
  EXPECT_TRUE(store.changes().empty());
  EXPECT_FALSE(store.find(id(3))->has_value());
  // A spared lease may still be ended later, but not because its line is removed.
  write([](auto* entries) { (*entries)[1].state = TokenState::kRevoked; });
  changes = store.changes();
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_TRUE(changes[0].ended && !changes[0].spared);
  write([](auto* entries) { (*entries)[1].state = TokenState::kRetired; });
  store.changes();
  write([](auto* entries) { entries->clear(); });
  EXPECT_TRUE(store.changes().empty());
}

TEST_F(TokenStoreTest, UntrustedFileAdmitsAndRevokesNoToken) {
  add(1);
  TokenStore store(path_);
  EXPECT_TRUE(store.changes().empty());
  ASSERT_EQ(chmod(path_.c_str(), 0644), 0);
  EXPECT_FALSE(store.find(id(1)).ok());
  EXPECT_TRUE(store.changes().empty());
  ASSERT_EQ(chmod(path_.c_str(), 0600), 0);
  EXPECT_TRUE(store.find(id(1)).ok());
  std::ofstream(path_, std::ios::app) << "half a li";
  EXPECT_FALSE(store.find(id(1)).ok());
  EXPECT_TRUE(store.changes().empty());
}

// A new file, in which all tokens are revoked, replaces the old one while no descriptor is free.
class RevocationTest : public UserFilesTest {
 protected:
  void SetUp() override {
    UserFilesTest::SetUp();
    add(1);
    ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit_), 0);
  }
  void TearDown() override {
    held_.clear();
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit_), 0);
    UserFilesTest::TearDown();
  }
  void prepare() {
    const std::filesystem::path valid = folder_ + "/valid", path = path_;
    std::filesystem::copy_file(path, valid);
    write([](auto* entries) { (*entries)[0].state = TokenState::kRevoked; });
    std::filesystem::rename(path, folder_ + "/revoked");
    std::filesystem::rename(valid, path);
  }
  void revoke() { ASSERT_EQ(rename((folder_ + "/revoked").c_str(), path_.c_str()), 0); }
  void limit_descriptors(rlim_t count) {
    const rlimit limit = {count, limit_.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  }
  void use_all_descriptors() {
    limit_descriptors(64);
    for (int fd = 0; (fd = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0;) held_.emplace_back(fd);
    ASSERT_EQ(errno, EMFILE);
  }

  rlimit limit_ = {};
  std::vector<UniqueFd> held_;
};

TEST_F(RevocationTest, AppliesWithoutFreeDescriptors) {
  prepare();
  TokenStore store(path_);
  use_all_descriptors();
  revoke();
  const auto changes = store.changes();
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_TRUE(changes[0].ended);
  const auto found = store.find(id(1));
  ASSERT_TRUE(found.ok()) << found.status().to_string();
  EXPECT_EQ((*found)->state, TokenState::kRevoked);
}

// The file is the same as at the failed read, so only another read can find the revocation.
TEST_F(RevocationTest, AppliesLaterAfterFailedRead) {
  prepare();
  TokenStore store(path_, {}, std::chrono::milliseconds(0));
  limit_descriptors(0);
  revoke();
  EXPECT_TRUE(store.changes().empty());
  EXPECT_FALSE(store.find(id(1)).ok()) << "nobody comes in meanwhile";
  limit_descriptors(limit_.rlim_cur);
  const auto changes = store.changes();
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_TRUE(changes[0].ended);
}

TEST_F(RevocationTest, RetriesFailedReadAfterDelayOrFileChange) {
  prepare();
  TokenStore store(path_, {}, std::chrono::hours(1));
  limit_descriptors(0);
  revoke();
  EXPECT_TRUE(store.changes().empty());
  limit_descriptors(limit_.rlim_cur);
  EXPECT_FALSE(store.find(id(1)).ok()) << "not at each look";
  EXPECT_LE(TokenStore::kReadAgainAfter, std::chrono::seconds(1));
  // A file that has changed is read at once.
  ASSERT_EQ(chmod(path_.c_str(), 0400), 0);
  EXPECT_EQ(store.changes().size(), 1u);
}

// Tokens from before the first successful read are not changes.
TEST_F(RevocationTest, TokensOfFirstSuccessfulReadAreNotChanges) {
  limit_descriptors(0);
  TokenStore store(path_, {}, std::chrono::milliseconds(0));
  EXPECT_FALSE(store.find(id(1)).ok());
  limit_descriptors(limit_.rlim_cur);
  EXPECT_TRUE(store.changes().empty());
  const auto found = store.find(id(1));
  ASSERT_TRUE(found.ok()) << found.status().to_string();
  EXPECT_TRUE(found->has_value());
}

// A process that may read the folder may lock it, for as long as it likes.
TEST_F(UserFilesTest, FolderLockDoesNotBlockWriters) {
  const UniqueFd folder(open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  ASSERT_EQ(flock(folder.get(), LOCK_EX | LOCK_NB), 0);
  const auto start = std::chrono::steady_clock::now();
  add(1);
  {
    TokenStore store(path_);
    store.used(id(1));
  }
  EXPECT_NE((*protocol::read_token_file(path_))[0].used, 0);
  bool made = false;
  const auto identity = open_identity({"", "", folder_}, &made);
  ASSERT_TRUE(identity.ok()) << identity.status().to_string();
  EXPECT_TRUE(leave_fingerprint(path_, identity->get()).ok());
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(9));
}

// A thread that writes the file waits for its lock. A thread that lets a client in does not.
TEST_F(TokenStoreTest, FileLockDoesNotBlockAdmission) {
  add(1);
  auto store = std::make_unique<TokenStore>(path_);
  const UniqueFd lock(open((path_ + ".lock").c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_EQ(flock(lock.get(), LOCK_EX | LOCK_NB), 0);
  store->used(id(1));
  std::thread writes([&] { store.reset(); });
  TokenStore second(path_);
  second.used(id(1));
  EXPECT_TRUE(second.find(id(1))->has_value());
  EXPECT_TRUE(second.changes().empty());
  ASSERT_EQ(flock(lock.get(), LOCK_UN), 0);
  writes.join();
}

// The daemon's end and revocations come after the write.
TEST_F(TokenStoreTest, FileLockDelaysWriterOnlyBriefly) {
  add(1);
  const UniqueFd lock(open((path_ + ".lock").c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_EQ(flock(lock.get(), LOCK_EX | LOCK_NB), 0);
  const auto start = std::chrono::steady_clock::now();
  TokenStore store(path_, {}, TokenStore::kReadAgainAfter, std::chrono::seconds(0));
  store.used(id(1));
  store.write_used_when_due();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
  ASSERT_EQ(flock(lock.get(), LOCK_UN), 0);
  EXPECT_EQ((*protocol::read_token_file(path_))[0].used, 0);
  store.write_used_when_due();  // A failed write is repeated later.
  EXPECT_NE((*protocol::read_token_file(path_))[0].used, 0);
}

TEST_F(TokenStoreTest, RecordsLastUseOfToken) {
  add(1);
  add(2);
  {
    TokenStore store(path_);
    store.used(id(1));
  }
  const auto entries = protocol::read_token_file(path_);
  EXPECT_NEAR(static_cast<double>((*entries)[0].used), static_cast<double>(seconds_now()), 60);
  EXPECT_EQ((*entries)[1].used, 0);
}

class AuditLogTest : public UserFilesTest {};

TEST_F(AuditLogTest, WritesOneUnforgeableLinePerEvent) {
  const auto log = AuditLog::open(path_);
  ASSERT_TRUE(log.ok()) << log.status().to_string();
  (*log)->write("lease.granted", {{"user", "anna"}, {"from", "tcp a <- b"}, {"reason", ""}});
  (*log)->write("link.refused", {{"reason", "x\"\\ user=root\nlease.granted"}});
  std::string text = text_of(path_);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2);
  // The text behind the time, which has the form 2026-11-22T02:10:04Z.
  EXPECT_EQ(text.substr(20, text.find('\n') - 20), R"( lease.granted user=anna from="tcp a <- b")");
  EXPECT_NE(text.find(R"( link.refused reason="x\"\\ user=root?lease.granted")"), std::string::npos)
      << text;
  struct stat about = {};
  ASSERT_EQ(stat(path_.c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 07777, 0600u);
  // After rotation the next line creates a new file.
  std::filesystem::rename(path_, path_ + ".1");
  (*log)->write("lease.ended", {});
  EXPECT_NE(text_of(path_).find(" lease.ended\n"), std::string::npos);
}

// Terminals also obey C1 controls, and show text behind an override in another order.
TEST_F(AuditLogTest, ReplacesTerminalControlCharacters) {
  const auto log = AuditLog::open(path_);
  ASSERT_TRUE(log.ok()) << log.status().to_string();
  (*log)->write("link.refused", {{"reason", "a\u009b2Jb\u202ec\x9b\x1b"}});
  const std::string text = text_of(path_);
  EXPECT_NE(text.find(R"(reason="a?2Jb?c??")"), std::string::npos) << text;
}

// A file that reached its limit accepts part of a line, and gives the reason with the next byte.
TEST_F(AuditLogTest, ReportsTruncatedLineAndStartsNewLineAfterIt) {
  const auto log = AuditLog::open(path_);
  ASSERT_TRUE(log.ok()) << log.status().to_string();
  std::ostringstream said;
  const auto kept = spdlog::default_logger();
  spdlog::set_default_logger(std::make_shared<spdlog::logger>(
      "test", std::make_shared<spdlog::sinks::ostream_sink_st>(said)));
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit narrow = {30, before.rlim_max};
  void (*const handler)(int) = signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &narrow);
  errno = ENOENT;  // As an earlier failure would leave it.
  (*log)->write("lease.granted", {{"user", "anna"}});
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, handler);
  spdlog::set_default_logger(kept);
  EXPECT_NE(said.str().find("File too large"), std::string::npos) << said.str();
  (*log)->write("lease.ended", {});
  (*log)->write("lease.ended", {});
  const std::string text = text_of(path_);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3) << text;
  EXPECT_EQ(text.find('\n'), 30u) << text;
}

TEST_F(AuditLogTest, LimitsRateOfRefusals) {
  const auto log = AuditLog::open(path_);
  for (int i = 0; i < 1000; ++i) (*log)->write_refusal("link.refused", {{"from", "x"}});
  (*log)->write("lease.granted", {});
  const std::string text = text_of(path_);
  // On a slow machine a few seconds may pass.
  EXPECT_LT(std::count(text.begin(), text.end(), '\n'), 500);
  EXPECT_GE(std::count(text.begin(), text.end(), '\n'), 1 + AuditLog::kRefusalsASecond);
  EXPECT_NE(text.find("lease.granted"), std::string::npos);
}

TEST_F(AuditLogTest, SizeLimitDropsOldLines) {
  const auto log = AuditLog::open(path_, 100);
  ASSERT_TRUE(log.ok()) << log.status().to_string();
  for (int i = 0; i < 20; ++i) (*log)->write("lease.granted", {{"user", "anna"}});
  (*log)->write("lease.ended", {});
  const std::string text = text_of(path_ + ".1") + text_of(path_);
  EXPECT_LT(text.size(), 300u);
  EXPECT_NE(text.find(" lease.ended\n"), std::string::npos);
}

TEST_F(AuditLogTest, RefusesInvalidPathsAndSymlinks) {
  EXPECT_EQ(AuditLog::open("audit").status().code(), Code::kInvalidArgument);
  EXPECT_EQ(AuditLog::open("").status().code(), Code::kInvalidArgument);
  EXPECT_FALSE(AuditLog::open(folder_ + "/no/such/folder").ok());
  std::filesystem::create_symlink(folder_ + "/elsewhere", path_);
  EXPECT_FALSE(AuditLog::open(path_).ok());
  EXPECT_TRUE(AuditLog::open("none").ok());
}

}  // namespace
}  // namespace gpurun::server
