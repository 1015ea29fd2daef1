// Kernel tables: tables by image and device. The oldest is forgotten when there are too many.
#include "client/interpose/modules/kernel_table.h"

#include <algorithm>
#include <utility>

namespace gpurun::client::interpose::modules {

Kernel::Kernel(protocol::KernelDescription&& description)
    : name(std::move(description.name)),
      described(description.described),
      layout_known(description.layout_known),
      parameters(std::move(description.parameters)),
      block_bytes(static_cast<std::uint32_t>(protocol::parameter_block_bytes(parameters))),
      layout_hash(protocol::layout_hash(parameters)) {
  attribute_count =
      static_cast<unsigned>(std::min(description.attributes.size(), attributes.size()));
  std::copy_n(description.attributes.begin(), attribute_count, attributes.begin());
}

const Kernel* KernelTable::add(protocol::KernelDescription&& description) {
  const std::lock_guard lock(mutex_);
  const Kernel& kernel = store_.emplace_back(std::move(description));
  // The key must live as long as the table, so it points into the first Kernel of a name.
  const auto [it, inserted] = positions_.emplace(kernel.name, order_.size());
  if (inserted) {
    order_.push_back(&kernel);
  } else {
    order_[it->second] = &kernel;
  }
  return &kernel;
}

void KernelTable::set_complete() {
  const std::lock_guard lock(mutex_);
  complete_ = true;
}

const Kernel* KernelTable::find(std::string_view name) const {
  const std::lock_guard lock(mutex_);
  const auto it = positions_.find(name);
  return it == positions_.end() ? nullptr : order_[it->second];
}

bool KernelTable::complete() const {
  const std::lock_guard lock(mutex_);
  return complete_;
}

std::vector<const Kernel*> KernelTable::kernels() const {
  const std::lock_guard lock(mutex_);
  return order_;
}

bool KernelTable::lacks(std::string_view name) const {
  const std::lock_guard lock(mutex_);
  return complete_ && !order_.empty() && positions_.find(name) == positions_.end();
}

std::shared_ptr<KernelTable> KnownImages::find(const Sha256Digest& digest,
                                               int server_device) const {
  const std::lock_guard lock(mutex_);
  const auto it = tables_.find({digest, server_device});
  return it == tables_.end() ? nullptr : it->second;
}

void KnownImages::add(const Sha256Digest& digest, std::shared_ptr<KernelTable> table) {
  const Key key{digest, table->server_device()};
  const std::lock_guard lock(mutex_);
  if (!tables_.insert_or_assign(key, std::move(table)).second) return;
  age_.push_back(key);
  if (age_.size() <= kImagesMax) return;
  tables_.erase(age_.front());
  age_.pop_front();
}

}  // namespace gpurun::client::interpose::modules
