// Wire: connects client and worker, and puts handles into the worker's table.
#include "tests/parity/wire.h"

#include <dlfcn.h>

#include <array>
#include <chrono>
#include <cstring>
#include <stdexcept>

#include "client/interpose/entry/entry.h"
#include "client/interpose/entry/generated_call.h"
#include "server/worker/channels/worker.h"
#include "transport/transport.h"

namespace gpurun::parity {
namespace {

using driver_abi::Completion;
using driver_abi::HandleKind;
using driver_abi::Row;

constexpr auto kWait = std::chrono::seconds(20);
// The opcode of the test's own call. No client sends it, because its row is refused.
constexpr char kTestCall[] = "cuCheckpointProcessLock";
enum What : std::uint64_t { kBind, kLookUp, kNothing };

struct Question {
  std::uint64_t what;
  std::uint64_t handle;
  std::uint64_t kind;
  std::uint64_t value;
};

server::CallOutcome answer_question(server::Call& call) {
  Question question;
  if (call.payload().size() != sizeof question) return server::CallOutcome::done(1);
  std::memcpy(&question, call.payload().data(), sizeof question);
  const auto kind = static_cast<HandleKind>(question.kind);
  std::uint64_t answer = 0;
  if (question.what == kBind) {
    (void)call.handles().erase(question.handle, kind);
    return server::CallOutcome::done(call.handles().bind(question.handle, kind, question.value));
  }
  if (question.what == kLookUp) answer = call.handles().find(question.handle, kind).value;
  call.set_reply(byte_view(&answer, sizeof answer));
  return server::CallOutcome::done(0);
}

// The results of the connector, which takes no argument.
std::unique_ptr<transport::Listener> g_listener;
Bytes g_snapshot;

Result<client::Attached> connect_channels() {
  client::Attached attached;
  attached.channels.server_name = g_listener->address();
  attached.snapshot = g_snapshot;
  for (int i = 0; i < 2; ++i) {
    auto connection = transport::connect("tcp://" + g_listener->address(), Deadline::in(kWait));
    if (!connection.ok()) return connection.status();
    if (i == 0) {
      attached.channels.log = *std::move(connection);
    } else {
      attached.channels.bulk.push_back(*std::move(connection));
    }
  }
  return attached;
}

template <typename Value>
Value expect(Result<Value> result) {
  if (!result.ok()) throw std::runtime_error(result.status().to_string());
  return *std::move(result);
}

}  // namespace

Wire::Wire(const std::string& driver_path, std::string recording) : Carrier(std::move(recording)) {
  start_worker(driver_path);
  client::interpose::set_connector(&connect_channels);
  int result = client::interpose::connected(&process_);
  if (result == 0) result = client::interpose::initialize(*process_);
  if (result != 0) throw std::runtime_error("cuInit: " + std::to_string(result));
  client::Lane::current()->set_context(client_handle(HandleKind::kContext, 0));
}

void Wire::start_worker(const std::string& driver_path) {
  driver_ = expect(server::CudaDriver::open(driver_path));
  if (const Status status = driver_->initialize(); !status.ok()) {
    throw std::runtime_error(status.to_string());
  }
  state_ = expect(server::make_handler_state(*driver_));
  g_snapshot.assign(state_->snapshot().begin(), state_->snapshot().end());
  server::WorkerOptions options;
  options.driver = expect(server::DriverFunctions::from_library(
      dlopen(driver_path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD)));
  options.handlers = server::make_handlers();
  options.user = state_.get();
  server::set_handler(options.handlers, kTestCall, &answer_question);
  g_listener = expect(transport::listen("tcp://127.0.0.1:0"));
  worker_ = std::thread([options] {
    server::WorkerChannels channels;
    auto log = g_listener->accept(Deadline::in(kWait));
    auto bulk = g_listener->accept(Deadline::in(kWait));
    if (!log.ok() || !bulk.ok()) return;
    channels.log = *std::move(log);
    channels.bulk.push_back(*std::move(bulk));
    // The result does not matter: this process never closes its session in order.
    static_cast<void>(server::run_worker(options, std::move(channels)));
  });
}

Wire::~Wire() {
  if (process_ != nullptr) delete process_->session;  // The worker sees its client die.
  worker_.join();
  g_listener.reset();
}

int Wire::ask(std::uint64_t what, std::uint64_t handle, HandleKind kind, std::uint64_t value,
              std::uint64_t* answer) {
  const Question question{what, handle, static_cast<std::uint64_t>(kind), value};
  client::CallSite site;
  site.opcode = driver_abi::find_row(kTestCall)->opcode;
  site.form = protocol::Form::kRaw;
  site.order = protocol::Order::kContext;
  site.context = client::Lane::current()->context();
  client::Reply reply;
  const int result = process_->session->call(*client::Lane::current(), site,
                                             byte_view(&question, sizeof question), &reply);
  if (answer != nullptr && reply.payload.size() == sizeof *answer) {
    std::memcpy(answer, reply.payload.data(), sizeof *answer);
  }
  return result;
}

// The handle of a context's object, such as a stream, names its context.
std::uint64_t Wire::current_context() { return client::Lane::current()->context(); }

std::uint64_t Wire::client_handle(HandleKind kind, std::size_t n) {
  if (is_server_value(kind)) return driver_handle(kind, n);
  std::uint64_t& handle = handles_[{kind, n}];
  if (handle == 0 || process_->session->handles().check(handle, kind) != 0) {
    client::interpose::Context* context = nullptr;
    if (kind == HandleKind::kContext) {
      context = &contexts_.emplace_back();
      context->active = true;
    }
    handle = process_->session->handles().mint(kind, current_context(), context);
    if (context != nullptr) context->handle = handle;
    if (const int result = ask(kBind, handle, kind, driver_handle(kind, n), nullptr); result != 0) {
      throw std::runtime_error("bind: " + std::to_string(result));
    }
  }
  return handle;
}

std::uint64_t Wire::driver_value(std::uint64_t client_handle, HandleKind kind) {
  if (is_server_value(kind)) return client_handle;
  std::uint64_t value = 0;
  (void)ask(kLookUp, client_handle, kind, 0, &value);
  return value;
}

int Wire::forward(const Row& row, void* const* arguments) {
  // Skips the rules about argument values, because the values are arbitrary.
  const int result = client::interpose::call_custom(row, [&] {
    return static_cast<CUresult>(
        client::interpose::run_generated(row, arguments, client::interpose::Rules::kSkip));
  });
  if (result != 0 || row.completion != Completion::kAsync) return result;
  // The fence returns failures that occurred after the call had returned.
  return ask(kNothing, 0, HandleKind::kNone, 0, nullptr);
}

}  // namespace gpurun::parity
