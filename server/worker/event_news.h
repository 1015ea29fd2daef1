// EventNews: the records of events whose ends the client is told unasked (kFlagTell), from the
// moment that they are given to the driver until they are told.
//
// They are told in the order of their calls, and before anything that follows from them: who is
// about to say that something is done looks first what else is done (ExecutorState::tell_news()).
// So a client that was told something and not of an event may say by itself that the event is not
// complete (docs/adr/0009).
//
// Any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

#include "protocol/record.h"

namespace gpurun::server {

class EventNews {
 public:
  // The record is about to be given to the driver; then it was, or could not be: then nothing is
  // told by us.
  void begin(const protocol::RecordHeader& record);
  void issued(std::uint64_t sequence);
  void cancel(std::uint64_t sequence);
  // What came before the record of the call `sequence` is done on the device; with a CUresult other
  // than 0 it failed, or nobody knows. Before or after issued().
  void ended(std::uint64_t sequence, int result);

  // Some records have not been told. Until it is false tell() is to be called before whatever
  // follows from one of them is said.
  bool owed() const noexcept { return owed_.load(std::memory_order_acquire) != 0; }
  // Some that are not told yet have ended.
  bool ready() const;
  // What has ended by now is told by the next tell(), by whoever calls it. Whether there is any.
  bool take_stock();
  // `post(record, result)` for each of them. Returns when all of which stock was taken are posted,
  // also by others. `post` must not call us.
  template <typename Post>
  void tell(Post post) {
    const std::lock_guard telling(telling_);
    News news;
    while (take(&news)) {
      post(news.record, news.result);
      owed_.fetch_sub(1, std::memory_order_acq_rel);
    }
  }

 private:
  struct News {
    protocol::RecordHeader record;
    int result = 0;
    bool issued = false;
    bool ended = false;
  };
  using BySequence = std::map<std::uint64_t, News>;

  void note(std::uint64_t sequence, bool News::*what, int result);
  bool take(News* news);

  std::mutex telling_;        // Held while some are posted. Taken before mutex_.
  mutable std::mutex mutex_;  // Guards the maps.
  BySequence open_;
  BySequence ready_;  // Ended and issued.
  BySequence due_;    // Of which stock was taken.
  std::atomic<std::size_t> owed_{0};
};

}  // namespace gpurun::server
