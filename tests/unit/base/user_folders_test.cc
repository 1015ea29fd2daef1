// User and service folders: the environment variables count in their order, and only with absolute
// paths.
#include "base/user_folders.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

namespace gpurun {
namespace {

class UserFolders : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"XDG_CACHE_HOME", "STATE_DIRECTORY", "XDG_STATE_HOME"}) unsetenv(name);
    setenv("HOME", "/house/anna", 1);
  }
};

TEST_F(UserFolders, PrefersAbsoluteXdgVariableOverHome) {
  EXPECT_EQ(xdg_folder("XDG_CACHE_HOME", ".cache"), "/house/anna/.cache/gpurun");
  setenv("XDG_CACHE_HOME", "/caches", 1);
  EXPECT_EQ(xdg_folder("XDG_CACHE_HOME", ".cache"), "/caches/gpurun");
  EXPECT_EQ(xdg_folder("XDG_CACHE_HOME", ".cache", "gpurun-x"), "/caches/gpurun-x");
  setenv("XDG_CACHE_HOME", "caches", 1);
  EXPECT_EQ(xdg_folder("XDG_CACHE_HOME", ".cache"), "/house/anna/.cache/gpurun");
  setenv("HOME", "anna", 1);
  EXPECT_EQ(xdg_folder("XDG_CACHE_HOME", ".cache"), "");
  unsetenv("HOME");
  EXPECT_EQ(xdg_folder("XDG_CACHE_HOME", ".cache"), "");
}

TEST_F(UserFolders, ServiceFolderTakesPrecedence) {
  EXPECT_EQ(service_folder("STATE_DIRECTORY"), "");
  EXPECT_EQ(state_folder(), geteuid() == 0 ? "/var/lib/gpurun" : "/house/anna/.local/state/gpurun");
  setenv("STATE_DIRECTORY", "/state/one:/state/two", 1);
  EXPECT_EQ(service_folder("STATE_DIRECTORY"), "/state/one");
  EXPECT_EQ(state_folder(), "/state/one");
}

}  // namespace
}  // namespace gpurun
