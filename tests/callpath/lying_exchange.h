// LyingExchange: a daemon's end of a worker's exchange that answers what the test wants.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cstring>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "server/exchange/exchange_message.h"
#include "server/handlers/interprocess/interprocess.h"
#include "server/handlers/interprocess/shareable_handles.h"
#include "tests/callpath/world.h"

namespace gpurun::callpath {

// Answers every request with the contents that the test sets. It keeps what the worker gives. The
// session begins and ends with it. `driver`: as WorldOptions::driver.
class LyingExchange {
 public:
  explicit LyingExchange(const char* driver = nullptr) {
    int pair[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    own_.reset(pair[0]);
    given_ = pair[1];
    thread_ = std::thread([this] {
      server::ExchangeMessage words;
      std::vector<UniqueFd> files_in;
      while (server::receive_words(own_.get(), &words, &files_in, Wait::kYes).ok()) {
        if (words.step == server::ExchangeStep::kPut) {
          given_content.assign(byte_view(words.content.data(), words.content_bytes).begin(),
                               byte_view(words.content.data(), words.content_bytes).end());
          given_files = std::move(files_in);
          words.handle = {static_cast<std::uint8_t>(++puts)};
        }
        if (words.step == server::ExchangeStep::kDrop) ++drops;
        words.content_bytes = static_cast<std::uint32_t>(content.size());
        if (!content.empty()) {
          std::memcpy(words.content.data(), content.data(), content.size());
        }
        words.descriptors = static_cast<std::uint32_t>(files.size());
        if (!server::send_words(own_.get(), words, files, Wait::kYes).ok()) return;
      }
    });
    WorldOptions options;
    options.driver = driver;
    options.prepare = [](server::WorkerOptions& worker) {
      auto& state = *static_cast<server::HandlerState*>(worker.user);
      const auto exchange = std::make_shared<server::ExchangeClient>(UniqueFd(given_));
      state.interprocess().set_exchange(exchange);
      state.shareable_handles().set_exchange(exchange);
    };
    world_ = std::make_unique<World>(options);
  }
  ~LyingExchange() {
    world_.reset();
    shutdown(own_.get(), SHUT_RDWR);
    thread_.join();
  }
  World& world() { return *world_; }

  // Changed only while no request is under way.
  Bytes content;
  std::vector<int> files;
  Bytes given_content;  // By the last put.
  std::vector<UniqueFd> given_files;
  unsigned puts = 0, drops = 0;

 private:
  static inline int given_ = -1;
  UniqueFd own_;
  std::thread thread_;
  std::unique_ptr<World> world_;
};

}  // namespace gpurun::callpath
