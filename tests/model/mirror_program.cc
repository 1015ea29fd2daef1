// MirrorProgram: texts, and happens-before as CUDA defines it for memory that host and device share
// (CUDA Programming Guide, "Mapped Memory"; CUDA Driver API, "API synchronization behavior").
#include "tests/model/mirror_program.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <sstream>

namespace gpurun::model {
namespace {

constexpr const char* kKinds[] = {"store", "load",     "await",   "launch", "copy",  "record",
                                  "wait",  "sync",     "context", "event",  "query", "poll",
                                  "free",  "allocate", "after",   "pause"};
constexpr int kKindCount = static_cast<int>(std::size(kKinds));

[[noreturn]] void refuse(const std::string& part) {
  std::fprintf(stderr, "no step: %s\n", part.c_str());
  std::exit(2);
}

MirrorUse use_from(const std::string& word) {
  MirrorUse use;
  use.byte = word[0];
  if (word.size() > 1) {
    use.kind = word.size() > 2 ? MirrorUse::kAwait : MirrorUse::kWrite;
    use.value = word[1] - '0';
  }
  return use;
}

// Each step has two points: its call, and its work on the device.
std::size_t call_of(std::size_t step) { return 2 * step; }
std::size_t work_of(std::size_t step) { return 2 * step + 1; }

// The order of a program's points.
class Order {
 public:
  explicit Order(const MirrorProgram& program) : program_(program) {
    before_.resize(2 * program.size(), std::vector<bool>(2 * program.size()));
    for (std::size_t step = 0; step < program.size() && problem_.empty(); ++step) add(step);
  }

  bool before(std::size_t earlier, std::size_t later) const { return before_[later][earlier]; }
  const std::string& problem() const { return problem_; }

 private:
  using Kind = MirrorStep::Kind;

  void follow(std::size_t point, std::size_t earlier) {
    before_[point][earlier] = true;
    for (std::size_t i = 0; i < before_.size(); ++i) {
      if (before_[earlier][i]) before_[point][i] = true;
    }
  }

  void add(std::size_t step) {
    const MirrorStep& now = program_[step];
    const std::size_t call = call_of(step), work = work_of(step);
    for (std::size_t i = 0; i < step; ++i) {
      const bool awaited = now.kind == Kind::kAfter && program_[i].thread == now.stream;
      if (program_[i].thread != now.thread && !awaited) continue;
      follow(call, call_of(i));
      if (program_[i].kind == Kind::kCopy) follow(call, work_of(i));
    }
    const std::vector<bool> known = before_[call];
    const auto in_stream = [&](std::size_t i) {
      return known[call_of(i)] && program_[i].on_device() && program_[i].stream == now.stream;
    };
    const bool all = now.kind == Kind::kContext || now.kind == Kind::kFree;
    const bool stream = now.kind == Kind::kSync || now.kind == Kind::kQuery;
    for (std::size_t i = 0; i < step; ++i) {
      const bool any = all && known[call_of(i)] && program_[i].on_device();
      if (any || (stream && in_stream(i))) follow(call, work_of(i));
    }
    if (now.kind == Kind::kEvent || now.kind == Kind::kPoll) follow_record(call, step, known);
    if (now.kind == Kind::kAwait) follow_writer(call, step, now.uses[0]);
    if (!now.on_device()) return;
    follow(work, call);
    for (std::size_t i = 0; i < step; ++i) {
      if (in_stream(i)) follow(work, work_of(i));
    }
    if (now.kind == Kind::kWait) follow_record(work, step, known);
    for (const MirrorUse& use : now.uses) {
      if (use.kind == MirrorUse::kAwait) follow_writer(work, step, use);
    }
  }

  void follow_record(std::size_t point, std::size_t step, const std::vector<bool>& known) {
    std::size_t last = step;
    for (std::size_t i = 0; i < program_.size(); ++i) {
      if (program_[i].kind != Kind::kRecord || program_[i].event != program_[step].event) continue;
      if (i < step && !known[call_of(i)]) problem_ = "a record that may be the last one or not";
      if (i > step) continue;
      if (last != step && !before_[call_of(i)][call_of(last)]) problem_ = "records without order";
      last = i;
    }
    if (last == step) {
      problem_ = "an event without a record";
    } else {
      follow(point, work_of(last));
    }
  }

  void follow_writer(std::size_t point, std::size_t step, const MirrorUse& awaited) {
    for (std::size_t i = 0; i < step; ++i) {
      for (const MirrorUse& use : program_[i].uses) {
        const bool writes = use.kind == MirrorUse::kWrite && use.byte == awaited.byte;
        if (writes && use.value == awaited.value) {
          return follow(point, program_[i].on_device() ? work_of(i) : call_of(i));
        }
      }
    }
    problem_ = "a flag that nothing sets";
  }

  const MirrorProgram& program_;
  std::vector<std::vector<bool>> before_;
  std::string problem_;
};

constexpr int kUndefined = 0;
struct Access {
  std::size_t point;
  MirrorUse* use;  // nullptr: the allocation ends or begins.
  MirrorUse::Kind kind;
  int value;
  bool ends;
};

std::vector<Access> accesses_to(char byte, MirrorProgram* program) {
  std::vector<Access> all;
  for (std::size_t i = 0; i < program->size(); ++i) {
    MirrorStep& step = (*program)[i];
    for (MirrorUse& use : step.uses) {
      if (use.byte != byte) continue;
      all.push_back({step.on_device() ? work_of(i) : call_of(i), &use, use.kind, use.value, false});
    }
    const bool ends = step.kind == MirrorStep::kFree || step.kind == MirrorStep::kAllocate;
    if (ends && std::strchr(kMirrorBytesOf[step.allocation - 'A'], byte) != nullptr) {
      all.push_back(
          {call_of(i), nullptr, MirrorUse::kWrite, kUndefined, step.kind == MirrorStep::kFree});
    }
  }
  return all;
}

}  // namespace

std::string text_of(const MirrorProgram& program) {
  std::string text;
  for (const MirrorStep& step : program) {
    if (!text.empty()) text += ", ";
    text += std::string(kKinds[step.kind]) + " " + std::to_string(step.thread);
    if (step.of_stream() || step.kind == MirrorStep::kAfter) {
      text += " " + std::to_string(step.stream);
    }
    if (step.of_event()) text += " " + std::to_string(step.event);
    if (step.kind == MirrorStep::kFree || step.kind == MirrorStep::kAllocate) {
      text += std::string(" ") + step.allocation;
    }
    for (const MirrorUse& use : step.uses) {
      text += std::string(" ") + use.byte;
      if (use.kind != MirrorUse::kRead) text += std::to_string(use.value);
      if (use.kind == MirrorUse::kAwait && step.on_device()) text += "?";
    }
  }
  return text;
}

MirrorProgram mirror_program_from(const std::string& text) {
  MirrorProgram program;
  std::istringstream all(text);
  for (std::string part; std::getline(all, part, ',');) {
    std::istringstream words(part);
    std::string kind, word;
    MirrorStep step;
    words >> kind >> step.thread;
    int known = 0;
    while (known < kKindCount && kind != kKinds[known]) ++known;
    if (known == kKindCount || !words || step.thread < 0 || step.thread > 1) refuse(part);
    step.kind = static_cast<MirrorStep::Kind>(known);
    if (step.of_stream() || step.kind == MirrorStep::kAfter) words >> step.stream;
    if (step.of_event()) words >> step.event;
    if (step.kind == MirrorStep::kFree || step.kind == MirrorStep::kAllocate) {
      words >> step.allocation;
    }
    if (!words || step.stream < 0 || step.stream > 1 || step.event < 0 || step.event > 1)
      refuse(part);
    while (words >> word) {
      if (std::strchr("abcdefg", word[0]) == nullptr) refuse(part);
      step.uses.push_back(use_from(word));
    }
    if (step.kind == MirrorStep::kAwait) step.uses.at(0).kind = MirrorUse::kAwait;
    program.push_back(step);
  }
  return program;
}

// Two points of one kernel are in the order of its uses, which is the order of the accesses.
std::optional<std::string> find_values(MirrorProgram* program) {
  const Order order(*program);
  if (!order.problem().empty()) return order.problem();
  for (const char byte : std::string("abcdefg")) {
    const std::vector<Access> all = accesses_to(byte, program);
    for (std::size_t i = 0; i < all.size(); ++i) {
      int value = 0;  // The memory begins with zeros.
      bool defined = true;
      const Access* last = nullptr;
      for (std::size_t k = 0; k < all.size(); ++k) {
        const bool conflict = all[i].kind == MirrorUse::kWrite || all[k].kind == MirrorUse::kWrite;
        const bool flag = all[i].kind == MirrorUse::kAwait || all[k].kind == MirrorUse::kAwait;
        const bool same = all[i].point == all[k].point;
        const bool earlier = same ? k < i : order.before(all[k].point, all[i].point);
        const bool later = same ? k > i : order.before(all[i].point, all[k].point);
        if (conflict && !flag && k != i && !earlier && !later) return "a race";
        if (!earlier || all[k].kind != MirrorUse::kWrite) continue;
        if (last == nullptr || last->point == all[k].point ||
            order.before(last->point, all[k].point)) {
          last = &all[k];
          value = all[k].value;
          defined = all[k].use != nullptr;
        }
      }
      if (last != nullptr && last->ends && all[i].use != nullptr) return "a use of freed memory";
      if (all[i].kind != MirrorUse::kRead) continue;
      if (!defined) return "a read of memory that has no value";
      all[i].use->value = value;
    }
  }
  return std::nullopt;
}

}  // namespace gpurun::model
