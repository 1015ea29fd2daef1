// IssueQueue: the calls that are decoded and not yet handed to the driver, and which of them may be
// issued now. It looks at record headers alone and calls nobody.
//
// Each queue (a stream, a lane, a context's gate, a context's ordered host calls) is a chain: a
// call waits for the one before it. Across chains a call waits for exactly the calls that
// protocol::Order says, and always for calls with lower numbers, so nothing can wait in a circle.
// Blocking streams wait for the legacy stream and it for them; among each other they do not, as on
// the device. A call that its client awaits delays no other, whatever its order: its thread makes
// no call meanwhile, and other threads have no word of it.
//
// An ordered host call with kFlagBarrier has two items: a mark, and the call behind it. The mark
// waits for the earlier calls of its context, but not for the end of ordered host calls. Every
// later call waits for the mark: from then on the device keeps the order (DeviceBarrier). So a free
// that blocks on its own thread delays no stream.
//
// Nothing stays behind when its calls are issued: an idle stream, lane or event costs nothing. One
// thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <unordered_map>
#include <vector>

#include "protocol/record.h"

namespace gpurun::server {

class IssueQueue {
 public:
  // What the headers do not say about the stream of a kStream call.
  struct StreamTraits {
    bool blocking = true;  // Synchronises with the legacy stream. Ignored for streams 0, 1 and 2.
    std::uint64_t context = 0;  // Where a stream handle was created; 0: the call's own.
  };

  class Item {
   public:
    std::uint64_t sequence() const noexcept { return sequence_; }
    void* user() const noexcept { return user_; }
    // This is the mark of the call that user() is, which has an item of its own.
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
    std::uint64_t contexts_[2] = {0, 0};  // The second: 0 when there is none.
    std::uint64_t subject_ = 0;
    std::size_t blockers_ = 0;
    bool held_ = false;
    bool is_mark_ = false;
    std::vector<Item*> dependents_;
  };

  IssueQueue() = default;
  IssueQueue(const IssueQueue&) = delete;
  IssueQueue& operator=(const IssueQueue&) = delete;

  // Takes a call of any order but kImmediate, which is never queued. Numbers rise from call to
  // call. `user` is the owner's. The item lives until finish(). Where the call has a mark, that is
  // barrier() then; its user() is the same.
  Item* push(const protocol::RecordHeader& header, const StreamTraits& traits, void* user);

  // Takes a call that waits for the calls `earlier` alone, and that no other waits for.
  void push_behind(std::uint64_t sequence, const std::vector<Item*>& earlier, void* user);

  // The issuable call with the lowest number, which is now being issued: it is finished or held
  // next. nullptr: there is none.
  Item* take();
  // It is issued (kOrderedHost: has returned). What waited for it alone becomes issuable.
  void finish(Item* item);
  // It cannot be issued now; it is offered again after retry_held(). Those behind it wait on.
  void hold(Item* item);
  void retry_held();

  // Forgets every call, also those being issued; `release` gets what push() was given.
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
  // Earlier calls of the queue that a call with this header would stand in are not issued yet.
  bool has_queue_of(const protocol::RecordHeader& header) const {
    return chains_.count(chain_of(header)) != 0;
  }
  // Likewise of the legacy stream of `context`, whose queue begins behind those of the context's
  // blocking streams.
  bool has_legacy_work(std::uint64_t context) const;
  // A call that changes `subject` is not issued yet.
  bool has_writer_of(std::uint64_t subject) const {
    const auto found = subjects_.find(subject);
    return found != subjects_.end() && found->second.writer != nullptr;
  }
  // The last barrier that is not issued. nullptr: there is none.
  Item* barrier() const noexcept { return barrier_; }
  bool has(std::uint64_t sequence) const { return items_.count(sequence) != 0; }
  bool has_mark(std::uint64_t sequence) const { return items_.count(sequence | kMarkBit) != 0; }
  std::size_t size() const noexcept { return items_.size(); }
  // Chains, contexts and events that are remembered, for tests: 0 when empty().
  std::size_t remembered() const noexcept;

 private:
  using Chain = Item::Chain;
  struct Tail {
    Item* item = nullptr;
    bool blocking = false;  // A blocking stream's, of the context it stands under.
  };
  using Tails = std::map<Chain, Tail>;
  struct Subject {
    Item* writer = nullptr;
    std::map<Chain, Item*> readers;  // Since the writer; the last of each chain.
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
  void order_in_context(Item& item, const protocol::RecordHeader& header);
  void order_past_streams(Item& item, std::uint64_t context);
  void order_in_stream(Item& item, std::uint64_t home, bool blocking);
  void order_by_subject(Item& item, bool writes);
  void remember(Item& item, std::uint64_t home, bool blocking);

  std::unordered_map<std::uint64_t, std::unique_ptr<Item>> items_;  // By key_of().
  std::set<std::pair<std::uint64_t, Item*>> issuable_;              // Lowest number first.
  std::vector<Item*> held_;
  std::map<Chain, Item*> chains_;                      // The last call of each.
  std::unordered_map<std::uint64_t, Tails> contexts_;  // Each chain's last call of that context.
  std::unordered_map<std::uint64_t, Subject> subjects_;
  Item* barrier_ = nullptr;  // The last one; it waits for those before.
};

}  // namespace gpurun::server
