// IssueQueue: the calls that are decoded and not yet handed to the driver, and which of them may be
// issued now. It looks only at record headers and calls no other part.
//
// Each queue (a stream, a lane, a context's gate, a context's ordered host calls) is a chain. A
// call waits for the call before it. Across chains a call waits for exactly the calls that
// protocol::Order names. It always waits for calls with lower numbers, so no cycle can form.
// Blocking streams wait for the legacy stream, and the legacy stream waits for them. Among each
// other they do not wait, as on the device. A call that its client waits for delays no other call,
// whatever its order. Its thread makes no call meanwhile, and other threads know nothing of it.
//
// An ordered host call with kFlagBarrier has two items: a mark, and the call behind it. The mark
// waits for the earlier calls of its context, but not for the end of ordered host calls. Every
// later call waits for the mark. From then on the device keeps the order (DeviceBarrier). So a free
// that blocks on its own thread delays no stream.
//
// Nothing is kept of calls that are issued: an idle stream, lane or event costs nothing. One thread
// at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <unordered_map>
#include <vector>

#include "protocol/log/record.h"

namespace gpurun::server {

class IssueQueue {
 public:
  // Facts that the headers do not have about the stream of a kStream call.
  struct StreamTraits {
    bool blocking = true;  // Synchronises with the legacy stream. Ignored for streams 0, 1 and 2.
    std::uint64_t context = 0;  // In which a stream handle was created. 0: the call's own.
  };

  class Item {
   public:
    std::uint64_t sequence() const noexcept { return sequence_; }
    void* user() const noexcept { return user_; }
    // True for the mark of the call in user(). That call has an item of its own.
    bool is_mark() const noexcept { return is_mark_; }

   private:
    friend class IssueQueue;

    struct Chain {
      std::uint8_t kind = 0;
      std::uint64_t id = 0;
      std::uint64_t context = 0;
      auto operator<=>(const Chain&) const = default;
    };

    std::uint64_t sequence_ = 0;
    void* user_ = nullptr;
    Chain chain_;
    std::uint64_t contexts_[2] = {0, 0};  // The second is 0 when there is only one.
    std::uint64_t subject_ = 0;
    std::size_t blockers_ = 0;
    bool held_ = false;
    bool is_mark_ = false;
    std::vector<Item*> dependents_;
  };

  IssueQueue() = default;
  IssueQueue(const IssueQueue&) = delete;
  IssueQueue& operator=(const IssueQueue&) = delete;

  // Takes a call of any order except kImmediate, which is never queued. Numbers rise from call to
  // call. `user` belongs to the owner. The item lives until finish(). For a call that has a mark,
  // barrier() is then the mark, with the same user().
  Item* push(const protocol::RecordHeader& header, const StreamTraits& traits, void* user);

  // Takes a call that waits only for the calls `earlier`. No other call waits for it.
  void push_behind(std::uint64_t sequence, const std::vector<Item*>& earlier, void* user);

  // The issuable call with the lowest number, which is now being issued. The caller then calls
  // finish() or hold() for it. nullptr: there is no such call.
  Item* take();
  // The call is issued, or has returned (kOrderedHost). Calls that waited only for it become
  // issuable.
  void finish(Item* item);
  // The call cannot be issued now. It is offered again after retry_held(). Calls behind it keep
  // waiting.
  void hold(Item* item);
  void retry_held();

  // Forgets every call, including those being issued. `release` gets the `user` of each push().
  template <typename Release>
  void clear(Release release) {
    for (auto& [sequence, item] : items_) {
      if (!item->is_mark_) release(item->user_);
    }
    items_.clear();
    issuable_.clear();
    held_.clear();
    chains_.clear();
    contexts_.clear();
    subjects_.clear();
    barrier_ = nullptr;
  }

  bool empty() const noexcept { return items_.empty(); }
  // True: earlier calls in the queue of a call with this header are not issued yet.
  bool has_queue_of(const protocol::RecordHeader& header) const {
    return chains_.count(chain_of(header)) != 0;
  }
  // As has_queue_of(), for the legacy stream of `context`. Its queue begins behind the queues of
  // the blocking streams of the context.
  bool has_legacy_work(std::uint64_t context) const;
  // A call that changes `subject` is not issued yet.
  bool has_writer_of(std::uint64_t subject) const {
    const auto found = subjects_.find(subject);
    return found != subjects_.end() && found->second.writer != nullptr;
  }
  // The last barrier that is not issued. nullptr: there is no such barrier.
  Item* barrier() const noexcept { return barrier_; }
  bool has(std::uint64_t sequence) const { return items_.count(sequence) != 0; }
  bool has_mark(std::uint64_t sequence) const { return items_.count(sequence | kMarkBit) != 0; }
  std::size_t size() const noexcept { return items_.size(); }
  // The number of chains, contexts and events that are remembered, for tests. 0 when empty().
  std::size_t remembered() const noexcept;

 private:
  using Chain = Item::Chain;
  struct Tail {
    Item* item = nullptr;
    bool blocking = false;  // The tail is of a blocking stream of the context it is listed under.
  };
  using Tails = std::map<Chain, Tail>;
  struct Subject {
    Item* writer = nullptr;
    std::map<Chain, Item*> readers;  // Since the writer. The last call of each chain.
  };

  static constexpr std::uint64_t kMarkBit = std::uint64_t{1} << 63;

  static Chain chain_of(const protocol::RecordHeader& header);
  static std::uint64_t key_of(const Item& item) {
    return item.is_mark_ ? item.sequence_ | kMarkBit : item.sequence_;
  }
  void push_mark(const protocol::RecordHeader& header, void* user);
  static void wait_for(Item& item, Item* earlier);
  void wait_for_context(Item& item, std::uint64_t context);
  void wait_for_gates(Item& item, std::uint64_t context);
  void wait_for_host_past(Item& item);
  void order_in_context(Item& item, const protocol::RecordHeader& header);
  void order_past_streams(Item& item, std::uint64_t context);
  void order_in_stream(Item& item, std::uint64_t home, bool blocking);
  void order_by_subject(Item& item, bool writes);
  void remember(Item& item, std::uint64_t home, bool blocking);

  std::unordered_map<std::uint64_t, std::unique_ptr<Item>> items_;  // By key_of().
  std::set<std::pair<std::uint64_t, Item*>> issuable_;              // Lowest number first.
  std::vector<Item*> held_;
  std::map<Chain, Item*> chains_;                      // The last call of each chain.
  std::unordered_map<std::uint64_t, Tails> contexts_;  // The last call of each chain.
  std::unordered_map<std::uint64_t, Subject> subjects_;
  Item* barrier_ = nullptr;  // The last one. It waits for those before it.
};

}  // namespace gpurun::server
