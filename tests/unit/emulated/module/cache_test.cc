// Object cache: it saves compilations, stays within its bound, and may be shared by processes.
// Damage and other users cannot harm it.
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "emulated/jit/object_cache.h"
#include "module_harness.h"

namespace gpurun::emulated {
namespace {

namespace fs = std::filesystem;

class CacheTest : public ModuleTest {
 protected:
  void SetUp() override {
    char name[] = "gpurun-cache-XXXXXX";
    folder_ = fs::path(testing::TempDir()) / name;
    std::string pattern = folder_.string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    cache_ = (folder_ / "a" / "cache").string();
  }
  void TearDown() override {
    module_.reset();
    fs::remove_all(folder_);
  }

  CompilerOptions options() const {
    CompilerOptions options;
    options.cache_directory = cache_;
    return options;
  }

  std::vector<fs::path> objects() const {
    std::vector<fs::path> found;
    for (const auto& entry : fs::directory_iterator(cache_)) {
      if (entry.path().extension() == ".o") found.push_back(entry.path());
    }
    return found;
  }

  // Compiles and runs a kernel that stores `value`. Returns the stored value.
  std::uint32_t store(std::uint32_t value) {
    EXPECT_TRUE(load({".visible .global .align 4 .u32 place;\n.visible .entry k() {\n"
                      "st.global.u32 [place], " +
                      std::to_string(value) + ";\nret; }"})
                    .ok());
    const GridResult result = run("k", {1, 1, 1}, {1, 1, 1}, Parameters());
    EXPECT_EQ(result.code, kGridOk) << result.message;
    const auto place = module_->global("place");
    return place.ok() ? *reinterpret_cast<const std::uint32_t*>(place->address) : 0;
  }

  fs::path folder_;
  std::string cache_;
};

TEST_F(CacheTest, SecondCompilationLoadsFromDiskAndRelocates) {
  start(options());
  EXPECT_EQ(store(7), 7u);
  EXPECT_EQ(compiler_->counters().cache_hits, 0u);
  EXPECT_EQ(objects().size(), 1u);
  // The first module stays loaded, so the second one's variable lies elsewhere.
  const std::unique_ptr<Compiler> first_compiler = std::move(compiler_);
  const std::unique_ptr<Module> first = std::move(module_);
  start(options());
  EXPECT_EQ(store(7), 7u);
  EXPECT_EQ(compiler_->counters().cache_hits, 1u);
  EXPECT_EQ(compiler_->counters().kernels, 1u);
  EXPECT_EQ(store(8), 8u);
  EXPECT_EQ(compiler_->counters().cache_hits, 1u);
  struct stat facts;
  ASSERT_EQ(stat(cache_.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0700u);
}

TEST_F(CacheTest, DamagedObjectsAreRecompiled) {
  start(options());
  EXPECT_EQ(store(7), 7u);
  ASSERT_EQ(objects().size(), 1u);
  const fs::path object = objects()[0];
  const auto whole = fs::file_size(object);
  const auto damage = [&](auto&& change) {
    change();
    start(options());
    EXPECT_EQ(store(7), 7u);
    EXPECT_EQ(compiler_->counters().cache_hits, 0u);
    EXPECT_EQ(fs::file_size(object), whole);  // Written again.
  };
  damage([&] {
    std::fstream file(object, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(whole / 2));
    file.put('\x5a');
    file.put('\xa5');
  });
  damage([&] { fs::resize_file(object, whole - 1); });
  damage([&] { fs::resize_file(object, 10); });
  damage([&] { fs::resize_file(object, 0); });
  damage([&] {  // Damage to the recorded stack size counts, too.
    std::fstream file(object, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(88);  // After CacheFolder's head.
    file.put('\x01');
  });
  damage([&] {
    fs::remove(object);
    fs::create_symlink("/dev/zero", object);
  });
}

TEST_F(CacheTest, UnsafeOrInvalidDirectoryIsNotUsed) {
  fs::create_directories(cache_);
  chmod(cache_.c_str(), 0777);
  EXPECT_EQ(ObjectCache::open(cache_, 1 << 20).status().code(), Code::kRefused);
  start(options());
  EXPECT_EQ(store(7), 7u);
  EXPECT_TRUE(objects().empty());
  cache_ = (folder_ / "file").string();
  std::ofstream(cache_) << "no directory";
  EXPECT_FALSE(ObjectCache::open(cache_, 1 << 20).ok());
  start(options());
  EXPECT_EQ(store(9), 9u);
}

TEST_F(CacheTest, EvictsUnusedObjectsWithinBound) {
  constexpr std::uint64_t kBound = 1 << 20;
  auto cache = ObjectCache::open(cache_, kBound);
  ASSERT_TRUE(cache.ok()) << cache.status().to_string();
  GeneratedCode code;
  code.object.assign(50000, 'x');
  code.stack_bytes = 123;
  for (int i = 0; i < 100; ++i) {
    (*cache)->store("key " + std::to_string(i), code);
    (*cache)->find("key 0");  // It is used all the time, so it must stay.
  }
  std::uint64_t total = 0;
  for (const fs::path& object : objects()) total += fs::file_size(object);
  EXPECT_LE(total, kBound + kBound / 8);
  EXPECT_GE(total, kBound / 2);
  const auto used = (*cache)->find("key 0");
  ASSERT_TRUE(used.has_value());
  EXPECT_EQ(used->object, code.object);
  EXPECT_EQ(used->stack_bytes, 123u);
  EXPECT_FALSE((*cache)->find("key 1").has_value());
  code.object.assign(kBound, 'y');
  (*cache)->store("too large", code);
  EXPECT_FALSE((*cache)->find("too large").has_value());
}

TEST_F(CacheTest, ProcessesShareDirectory) {
  ASSERT_TRUE(ObjectCache::open(cache_, 1 << 20).ok());
  const auto work = [&](int number) {
    auto cache = ObjectCache::open(cache_, 200000);
    if (!cache.ok()) return false;
    bool right = true;
    for (int i = 0; i < 300; ++i) {
      const int which = (i * 7 + number) % 40;
      GeneratedCode code;
      code.object.assign(10000, static_cast<char>('a' + which % 26));
      const std::string key = std::to_string(which);
      if (const auto found = (*cache)->find(key)) right = right && found->object == code.object;
      (*cache)->store(key, code);
    }
    return right;
  };
  std::vector<pid_t> children;
  for (int i = 0; i < 4; ++i) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) _exit(work(i) ? 0 : 1);
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int state = 0;
    ASSERT_EQ(waitpid(child, &state, 0), child);
    EXPECT_TRUE(WIFEXITED(state) && WEXITSTATUS(state) == 0);
  }
}

TEST_F(CacheTest, QuickAndGoodCodeAreCachedSeparately) {
  CompilerOptions quick = options();
  quick.quick_above_instructions = 0;
  start(quick);
  EXPECT_EQ(store(11), 11u);
  EXPECT_EQ(compiler_->counters().quick_kernels, 1u);
  start(quick);
  EXPECT_EQ(store(11), 11u);
  EXPECT_EQ(compiler_->counters().cache_hits, 1u);
  EXPECT_EQ(compiler_->counters().quick_kernels, 1u);
  start(options());
  EXPECT_EQ(store(11), 11u);
  EXPECT_EQ(compiler_->counters().cache_hits, 0u) << "good code was asked for";
  // Good code in the cache serves large kernels, too.
  start(quick);
  EXPECT_EQ(store(11), 11u);
  EXPECT_EQ(compiler_->counters().cache_hits, 1u);
  EXPECT_EQ(compiler_->counters().quick_kernels, 0u);
}

// Text of a kernel that takes a while to compile.
std::string long_kernel() {
  std::string text =
      ".global .u32 place;\n.visible .entry k() {\n.reg .b32 %r<3>; mov.u32 %r0, %tid.x;\n";
  for (int i = 0; i < 400; ++i) {
    text += "mad.lo.u32 %r1, %r1, %r0, " + std::to_string(i) + "; xor.b32 %r0, %r0, %r1;\n";
  }
  return kHead + text + "st.global.u32 [place], %r0; ret; }\n";
}

// The others wait for the first one's code.
TEST_F(CacheTest, OneOfSeveralProcessesCompiles) {
  constexpr int kProcesses = 4;
  int go[2];
  ASSERT_EQ(pipe(go), 0);
  std::vector<pid_t> children;
  for (int i = 0; i < kProcesses; ++i) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      close(go[1]);
      char byte;
      if (read(go[0], &byte, 1) != 0) _exit(2);  // All begin when the pipe is closed.
      CompilerOptions patient = options();
      patient.turn_wait_per_instruction = std::chrono::minutes(1);  // The machine may be busy.
      start(patient);
      if (!load_whole({long_kernel()}).ok() || !module_->compile("k").ok()) _exit(2);
      _exit(compiler_->counters().cache_hits == 1 ? 1 : 0);
    }
    children.push_back(child);
  }
  close(go[0]);
  close(go[1]);
  int compiled = 0;
  for (const pid_t child : children) {
    int state = 0;
    ASSERT_EQ(waitpid(child, &state, 0), child);
    ASSERT_TRUE(WIFEXITED(state) && WEXITSTATUS(state) != 2);
    if (WEXITSTATUS(state) == 0) ++compiled;
  }
  EXPECT_EQ(compiled, 1);
}

// Another process may be slow, or never store what it compiles.
TEST_F(CacheTest, WaitForAnotherProcessEnds) {
  using std::chrono::milliseconds;
  auto cache = ObjectCache::open(cache_, 1 << 20);
  ASSERT_TRUE(cache.ok()) << cache.status().to_string();
  const ObjectCache::Turn first = (*cache)->take_turn("a", milliseconds(0));
  EXPECT_TRUE(first.taken());
  EXPECT_FALSE((*cache)->take_turn("a", milliseconds(20)).taken());
  EXPECT_TRUE((*cache)->take_turn("b", milliseconds(0)).taken()) << "another object";
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    auto mine = ObjectCache::open(cache_, 1 << 20);
    const ObjectCache::Turn turn = (*mine)->take_turn("c", milliseconds(0));
    if (write(ready[1], turn.taken() ? "t" : "f", 1) != 1) _exit(1);
    for (;;) pause();
  }
  char taken = 0;
  ASSERT_EQ(read(ready[0], &taken, 1), 1);
  EXPECT_EQ(taken, 't');
  EXPECT_FALSE((*cache)->take_turn("c", milliseconds(20)).taken());
  kill(child, SIGKILL);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_TRUE((*cache)->take_turn("c", milliseconds(0)).taken()) << "its holder has died";
  close(ready[0]);
  close(ready[1]);
}

}  // namespace
}  // namespace gpurun::emulated
