// Server identity: the certificate and key by which clients know this server. They are an
// operator's own, or made once and kept in the daemon's state folder (server-certificate.pem,
// server-key.pem of mode 0600).
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "transport/tls/certificate.h"

namespace gpurun::server {

struct IdentityFiles {
  // Both or neither. Neither: missing files are made in `folder`.
  std::string certificate;
  std::string key;
  std::string folder;
};

// Sets `*made` when it made them now. kRefused: others may read the key, or it is another user's.
// kUnavailable: no such file or folder. kInvalidArgument: the files do not hold a certificate and
// its key.
Result<std::shared_ptr<const transport::tls::Identity>> open_identity(const IdentityFiles& files,
                                                                      bool* made);

// Writes the fingerprint of this server's key beside its file of tokens, for gpuctl token. nullptr:
// the server shows no key, so removes an earlier run's fingerprint.
Status leave_fingerprint(const std::string& tokens, const transport::tls::Identity* identity);

}  // namespace gpurun::server
