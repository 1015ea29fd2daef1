// Completion queues, completion channels and asynchronous events of the verbs double.
//
// A channel is a pipe that carries the numbers of CQs, so that its descriptor can be polled and
// made non-blocking as the kernel's. A number without a CQ is skipped: the CQ was destroyed
// meanwhile.
#include "tests/drivers/verbs/completions.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "tests/drivers/verbs/counters.h"
#include "tests/drivers/verbs/registration.h"

namespace gpurun::verbs_double {
namespace {

struct AsyncRecord {
  std::uint64_t type;
  std::uint64_t element;  // A port, the number of a QP, or the number of a CQ.
};

// Reads one whole record. Returns false with errno.
bool read_record(int descriptor, void* record, std::size_t size) {
  for (;;) {
    const ssize_t got = read(descriptor, record, size);
    if (got == static_cast<ssize_t>(size)) return true;
    if (got < 0 && errno == EINTR) continue;
    if (got >= 0) errno = EIO;
    return false;
  }
}

// The writer's end never blocks: with so many unread events the descriptor stays readable.
void write_record(int descriptor, const void* record, std::size_t size) {
  [[maybe_unused]] const ssize_t written = write(descriptor, record, size);
}

bool is_cq_event(ibv_event_type type) { return type == IBV_EVENT_CQ_ERR; }
bool is_port_event(ibv_event_type type) {
  return type == IBV_EVENT_PORT_ACTIVE || type == IBV_EVENT_PORT_ERR;
}

}  // namespace

void add_completion(Cq& cq, const Entry& entry, bool solicited) {
  if (cq.overrun) return;
  if (cq.entries.size() >= static_cast<std::size_t>(cq.cqe)) {
    cq.overrun = true;
    post_event(*static_cast<Context*>(verbs_get_ctx(cq.context)), IBV_EVENT_CQ_ERR, cq.id);
    return;
  }
  cq.entries.push_back(entry);
  const bool failed = entry.wc.status != IBV_WC_SUCCESS;
  count(&verbs_double_counts::completions);
  if (failed) count(&verbs_double_counts::failed_completions);
  const bool wanted =
      cq.armed == Cq::Armed::kAny || (cq.armed == Cq::Armed::kSolicited && (solicited || failed));
  if (!wanted || cq.channel == nullptr) return;
  cq.armed = Cq::Armed::kNo;
  count(&verbs_double_counts::events);
  write_record(static_cast<Channel*>(cq.channel)->writer, &cq.id, sizeof(cq.id));
}

void drop_completions(Cq& cq, std::uint32_t qp_number) {
  std::erase_if(cq.entries, [&](const Entry& entry) { return entry.wc.qp_num == qp_number; });
}

void post_event(Context& context, ibv_event_type type, std::uint64_t element) {
  const AsyncRecord record{static_cast<std::uint64_t>(type), element};
  write_record(context.async_writer, &record, sizeof(record));
}

int poll_cq(ibv_cq* visible, int most, ibv_wc* out) {
  auto& cq = *static_cast<Cq*>(visible);
  const Lock lock(nic().mutex);
  if (most < 0 || cq.overrun) return -1;
  int polled = 0;
  for (; polled < most && !cq.entries.empty(); ++polled) {
    const Entry& entry = cq.entries.front();
    out[polled] = entry.wc;
    if (const auto qp = nic().qps.find(entry.wc.qp_num); qp != nic().qps.end()) {
      if (entry.send_slots != 0) place_reads(*qp->second);
      qp->second->send_used -= entry.send_slots;
      qp->second->receive_used -= entry.receive_slots;
    }
    cq.entries.pop_front();
  }
  return polled;
}

int request_notify(ibv_cq* visible, int solicited_only) {
  auto& cq = *static_cast<Cq*>(visible);
  const Lock lock(nic().mutex);
  count(&verbs_double_counts::notify_requests);
  if (cq.armed != Cq::Armed::kAny) {
    cq.armed = solicited_only != 0 ? Cq::Armed::kSolicited : Cq::Armed::kAny;
  }
  return 0;
}

}  // namespace gpurun::verbs_double

using namespace gpurun::verbs_double;

ibv_comp_channel* ibv_create_comp_channel(ibv_context* context) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return nullptr;
  fcntl(ends[1], F_SETFL, O_NONBLOCK);
  auto* channel = new Channel{};
  channel->context = context;
  channel->fd = ends[0];
  channel->writer = set_aside(ends[1]);
  return channel;
}

int ibv_destroy_comp_channel(ibv_comp_channel* visible) {
  auto* channel = static_cast<Channel*>(visible);
  const Lock lock(nic().mutex);
  if (channel->refcnt != 0) return EBUSY;
  close(channel->fd);
  close(channel->writer);
  delete channel;
  return 0;
}

ibv_cq* ibv_create_cq(ibv_context* context, int entries, void* cookie, ibv_comp_channel* channel,
                      int vector) {
  const Lock lock(nic().mutex);
  if (entries < 1 || static_cast<std::uint32_t>(entries) > device_of(context).settings.cqe_max ||
      vector < 0 || vector >= context->num_comp_vectors) {
    errno = EINVAL;
    return nullptr;
  }
  auto* cq = new Cq{};
  cq->context = context;
  cq->channel = channel;
  cq->cq_context = cookie;
  cq->cqe = entries;
  cq->id = nic().next_cq++;
  cq->handle = static_cast<std::uint32_t>(cq->id);
  pthread_mutex_init(&cq->mutex, nullptr);
  pthread_cond_init(&cq->cond, nullptr);
  if (channel != nullptr) ++channel->refcnt;
  nic().cqs.emplace(cq->id, cq);
  return cq;
}

int ibv_destroy_cq(ibv_cq* visible) {
  auto* cq = static_cast<Cq*>(visible);
  Lock lock(nic().mutex);
  if (cq->users != 0) return EBUSY;
  nic().cqs.erase(cq->id);
  nic().acknowledged.wait(lock, [&] {
    return cq->comp_events_completed == cq->events &&
           cq->async_events_completed == cq->async_events;
  });
  if (cq->channel != nullptr) --cq->channel->refcnt;
  pthread_mutex_destroy(&cq->mutex);
  pthread_cond_destroy(&cq->cond);
  delete cq;
  return 0;
}

int ibv_get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** cookie) {
  count(&verbs_double_counts::event_reads);
  for (;;) {
    std::uint64_t id = 0;
    if (!read_record(channel->fd, &id, sizeof(id))) return -1;
    const Lock lock(nic().mutex);
    const auto found = nic().cqs.find(id);
    if (found == nic().cqs.end()) continue;
    ++found->second->events;
    *cq = found->second;
    *cookie = found->second->cq_context;
    return 0;
  }
}

void ibv_ack_cq_events(ibv_cq* cq, unsigned events) {
  const Lock lock(nic().mutex);
  cq->comp_events_completed += events;
  nic().acknowledged.notify_all();
}

int ibv_get_async_event(ibv_context* context, ibv_async_event* event) {
  for (;;) {
    AsyncRecord record{};
    if (!read_record(context->async_fd, &record, sizeof(record))) return -1;
    const Lock lock(nic().mutex);
    event->event_type = static_cast<ibv_event_type>(record.type);
    if (is_port_event(event->event_type)) {
      event->element.port_num = static_cast<int>(record.element);
      return 0;
    }
    if (is_cq_event(event->event_type)) {
      const auto cq = nic().cqs.find(record.element);
      if (cq == nic().cqs.end()) continue;
      ++cq->second->async_events;
      event->element.cq = cq->second;
      return 0;
    }
    const auto qp = nic().qps.find(static_cast<std::uint32_t>(record.element));
    if (qp == nic().qps.end()) continue;
    ++qp->second->async_events;
    event->element.qp = qp->second;
    return 0;
  }
}

void ibv_ack_async_event(ibv_async_event* event) {
  const Lock lock(nic().mutex);
  if (is_port_event(event->event_type)) return;
  if (is_cq_event(event->event_type)) {
    ++event->element.cq->async_events_completed;
  } else {
    ++event->element.qp->events_completed;
  }
  nic().acknowledged.notify_all();
}
