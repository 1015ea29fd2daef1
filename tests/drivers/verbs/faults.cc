// Parses faults, and counts what triggers them.
#include "tests/drivers/verbs/faults.h"

#include <cerrno>
#include <string>
#include <utility>

#include "tests/drivers/verbs/rules_text.h"

namespace gpurun::verbs_double {
namespace {

constexpr std::uint64_t kMost = 1ULL << 62;

constexpr std::pair<const char*, FaultAction> kActions[] = {
    {"post_fails", FaultAction::kPostFails},
    {"completes_with", FaultAction::kCompletesWith},
    {"loses_completion", FaultAction::kLosesCompletion},
    {"places_late", FaultAction::kPlacesLate},
    {"breaks_qp", FaultAction::kBreaksQp},
    {"cuts_qp", FaultAction::kCutsQp},
    {"stops_qp", FaultAction::kStopsQp},
    {"port_down", FaultAction::kPortDown},
    {"port_up", FaultAction::kPortUp},
    {"memlock", FaultAction::kMemlock},
    {"mr_fails", FaultAction::kMrFails},
    {"dmabuf_fails", FaultAction::kDmaBufFails},
    {"open_fails", FaultAction::kOpenFails},
    {"delays", FaultAction::kDelays}};

constexpr std::pair<const char*, RequestKind> kKinds[] = {
    {"send", RequestKind::kSend},   {"send_imm", RequestKind::kSendImm},
    {"write", RequestKind::kWrite}, {"write_imm", RequestKind::kWriteImm},
    {"read", RequestKind::kRead},   {"recv", RequestKind::kRecv},
    {"any", RequestKind::kAny}};

constexpr std::pair<const char*, int> kErrors[] = {
    {"EPERM", EPERM},   {"EACCES", EACCES},         {"ENOMEM", ENOMEM},
    {"EINVAL", EINVAL}, {"ENODEV", ENODEV},         {"EIO", EIO},
    {"EAGAIN", EAGAIN}, {"EOPNOTSUPP", EOPNOTSUPP}, {"EFAULT", EFAULT}};

template <typename Value, std::size_t n>
Value named(const TextRule& rule, const std::pair<const char*, Value> (&table)[n],
            const std::string& name) {
  for (const auto& [known, value] : table) {
    if (name == known) return value;
  }
  rule.wrong("unknown word `" + name + "`");
}

void need(const TextRule& rule, const char* key) {
  if (!rule.has(key)) rule.wrong(std::string("needs ") + key);
}

void parse_counted(const TextRule& rule, Fault& fault) {
  need(rule, "at");
  fault.at = rule.number("at", 0, 1, kMost);
  fault.kind = named(rule, kKinds, rule.text("kind", "any"));
}

void parse_trigger(const TextRule& rule, Fault& fault) {
  fault.posts = rule.number("posts", 0, 1, kMost);
  fault.bytes = rule.number("bytes", 0, 1, kMost);
}

Fault parse_fault(const TextRule& rule) {
  Fault fault;
  fault.action = named(rule, kActions, rule.word());
  switch (fault.action) {
    case FaultAction::kPostFails:
      rule.only({"at", "kind", "error"});
      parse_counted(rule, fault);
      fault.amount = static_cast<std::uint64_t>(named(rule, kErrors, rule.text("error", "ENOMEM")));
      break;
    case FaultAction::kCompletesWith:
      rule.only({"at", "kind", "status"});
      parse_counted(rule, fault);
      need(rule, "status");
      fault.amount = rule.number("status", 0, 1, IBV_WC_GENERAL_ERR);
      break;
    case FaultAction::kLosesCompletion:
      rule.only({"at", "kind"});
      parse_counted(rule, fault);
      break;
    case FaultAction::kPlacesLate:
      rule.only({"at", "kind", "by"});
      parse_counted(rule, fault);
      need(rule, "by");
      fault.amount = rule.number("by", 0, 1, 1U << 20);
      break;
    case FaultAction::kBreaksQp:
    case FaultAction::kCutsQp:
    case FaultAction::kStopsQp:
      rule.only({"posts", "bytes"});
      parse_trigger(rule, fault);
      if (fault.posts == 0 && fault.bytes == 0) rule.wrong("needs posts or bytes");
      break;
    case FaultAction::kPortDown:
    case FaultAction::kPortUp:
      rule.only({"port", "posts", "bytes"});
      parse_trigger(rule, fault);
      fault.port = static_cast<std::uint8_t>(rule.number("port", 1, 1, 8));
      break;
    case FaultAction::kMemlock:
      rule.only({"bytes"});
      need(rule, "bytes");
      fault.amount = rule.number("bytes", 0, 0, kMost);
      break;
    case FaultAction::kMrFails:
    case FaultAction::kDmaBufFails:
      rule.only({"at", "error"});
      fault.at = rule.number("at", 0, 1, kMost);
      fault.amount = static_cast<std::uint64_t>(named(rule, kErrors, rule.text("error", "ENOMEM")));
      break;
    case FaultAction::kOpenFails:
      rule.only({"error"});
      fault.amount = static_cast<std::uint64_t>(named(rule, kErrors, rule.text("error", "EACCES")));
      break;
    case FaultAction::kDelays:
      rule.only({"us"});
      need(rule, "us");
      fault.amount = rule.number("us", 0, 0, 60'000'000);
      break;
  }
  return fault;
}

}  // namespace

void Faults::add(std::string_view text) {
  std::vector<Fault> added;
  for (const TextRule& rule : parse_rules(text)) added.push_back(parse_fault(rule));
  faults_.insert(faults_.end(), added.begin(), added.end());
}

const Fault* Faults::count(FaultAction action, RequestKind kind) {
  const Fault* met = nullptr;
  for (Fault& fault : faults_) {
    const bool matches = fault.kind == RequestKind::kAny || fault.kind == kind;
    if (fault.action == action && matches && ++fault.seen == fault.at) met = &fault;
  }
  return met;
}

int Faults::registration_error(FaultAction which) {
  int error = 0;
  for (Fault& fault : faults_) {
    if (fault.action != which) continue;
    ++fault.seen;
    if (fault.at == 0 || fault.at == fault.seen) error = static_cast<int>(fault.amount);
  }
  return error;
}

int Faults::post_error(RequestKind kind) {
  const Fault* fault = count(FaultAction::kPostFails, kind);
  return fault == nullptr ? 0 : static_cast<int>(fault->amount);
}

std::optional<ibv_wc_status> Faults::status(RequestKind kind) {
  const Fault* fault = count(FaultAction::kCompletesWith, kind);
  if (fault == nullptr) return std::nullopt;
  return static_cast<ibv_wc_status>(fault->amount);
}

bool Faults::loses(RequestKind kind) {
  return count(FaultAction::kLosesCompletion, kind) != nullptr;
}

std::uint32_t Faults::late(RequestKind kind) {
  const Fault* fault = count(FaultAction::kPlacesLate, kind);
  return fault == nullptr ? 0 : static_cast<std::uint32_t>(fault->amount);
}

std::vector<Fault> Faults::triggered(std::uint64_t posts, std::uint64_t bytes) {
  std::vector<Fault> due;
  for (Fault& fault : faults_) {
    const bool breaks =
        fault.action == FaultAction::kBreaksQp || fault.action == FaultAction::kCutsQp ||
        fault.action == FaultAction::kStopsQp || fault.action == FaultAction::kPortDown ||
        fault.action == FaultAction::kPortUp;
    if (!breaks || fault.done) continue;
    fault.seen += posts;
    fault.seen_bytes += bytes;
    const bool at_once = fault.posts == 0 && fault.bytes == 0;
    fault.done = at_once || (fault.posts != 0 && fault.seen >= fault.posts) ||
                 (fault.bytes != 0 && fault.seen_bytes >= fault.bytes);
    if (fault.done) due.push_back(fault);
  }
  return due;
}

std::optional<std::uint64_t> Faults::amount(FaultAction action) const {
  std::optional<std::uint64_t> found;  // The last one counts.
  for (const Fault& fault : faults_) {
    if (fault.action == action) found = fault.amount;
  }
  return found;
}

}  // namespace gpurun::verbs_double
