// Partner: the other of two processes that use CUDA and communicate by pipes. The leader starts it
// by running its own program.
#pragma once

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

#include "driver_test.h"

extern char** environ;

// The other process, as seen by either of the two.
class Partner {
 public:
  // Starts the process that runs `words` (arguments after the program's name), with this one as its
  // leader.
  static Partner start(const char* program, std::vector<std::string> words) {
    int down[2], up[2];
    EXPECT(pipe(down) == 0 && pipe(up) == 0);
    words.insert(words.begin(), program);
    words.push_back(std::to_string(down[0]));
    words.push_back(std::to_string(up[1]));
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    Partner partner(up[0], down[1]);
    EXPECT(posix_spawn(&partner.process_, program, nullptr, nullptr, arguments.data(), environ) ==
           0);
    close(down[0]);
    close(up[1]);
    return partner;
  }
  // For the leader, in a process that start() made. The two numbers are its last two words.
  Partner(int from, int to) : from_(from), to_(to) {}

  template <typename T>
  void tell(const T& what) const {
    EXPECT(write(to_, &what, sizeof what) == sizeof what);  // The other process lives.
  }
  template <typename T>
  T hear() const {
    T what;
    char* at = reinterpret_cast<char*>(&what);
    for (size_t left = sizeof what; left > 0;) {
      const ssize_t got = read(from_, at, left);
      EXPECT(got > 0);  // The other process lives.
      at += got, left -= static_cast<size_t>(got);
    }
    return what;
  }
  // A barrier of both processes.
  void meet() const {
    tell('.');
    (void)hear<char>();
  }
  void end(int signal = 0) const {
    if (signal != 0) kill(process_, signal);
    int status = -1;
    EXPECT(waitpid(process_, &status, 0) == process_);
    if (signal == 0) EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }

 private:
  int from_, to_;
  pid_t process_ = -1;
};
