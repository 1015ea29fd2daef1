// The certificate and key by which clients know this server: an operator's own, or made once and
// kept in the daemon's state folder (server-certificate.pem, server-key.pem of mode 0600).
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "transport/tls/certificate.h"

namespace gpurun::server {

struct IdentityFiles {
  // Both, or neither: then they are made in `folder` where they are missing.
  std::string certificate;
  std::string key;
  std::string folder;
};

// Sets `*made` when they were made now. kRefused: others may read the key, or it is another user's.
// kUnavailable: no such file or folder. kInvalidArgument: what they hold is no certificate and its
// key.
Result<std::shared_ptr<const transport::tls::Identity>> open_identity(const IdentityFiles& files,
                                                                      bool* made);

// Leaves the fingerprint of the key that this server shows beside its file of tokens, for who makes
// some (gpuctl token); takes away what an earlier run left when it shows none (nullptr).
Status leave_fingerprint(const std::string& tokens, const transport::tls::Identity* identity);

}  // namespace gpurun::server
