#include "common/identity/job_secret.h"

#include <sodium.h>

#include <cstdlib>
#include <string>

#include "common/error.h"

namespace tandem {
namespace {

static_assert(sizeof(Proof) == crypto_auth_BYTES);

void start_sodium() {
    if (sodium_init() < 0) throw Error("libsodium does not start: no source of random numbers");
}

std::string message(std::string_view who, const Nonce& server, const Nonce& client) {
    std::string text = "tandem store, ";
    text.append(who).push_back('\0');
    text.append(server.begin(), server.end());
    text.append(client.begin(), client.end());
    return text;
}

const unsigned char* bytes(std::string_view text) {
    return reinterpret_cast<const unsigned char*>(text.data());
}

}  // namespace

Nonce random_nonce() {
    start_sodium();
    Nonce nonce{};
    randombytes_buf(nonce.data(), nonce.size());
    return nonce;
}

std::string random_hex() {
    std::string text;
    for (const unsigned char byte : random_nonce()) text += fmt::format("{:02x}", byte);
    return text;
}

JobSecret::JobSecret(std::string_view text) {
    if (text.size() < kShortest) {
        throw ConfigError(
            "environment", "TANDEM_JOB_SECRET",
            fmt::format("{} bytes long; it must be random and have at least {}, the same on all ranks",
                        text.size(), kShortest));
    }
    static_assert(sizeof(key_) == crypto_auth_KEYBYTES);
    start_sodium();
    crypto_generichash(key_.data(), key_.size(), bytes(text), text.size(), nullptr, 0);
}

JobSecret::~JobSecret() {
    sodium_memzero(key_.data(), key_.size());
}

std::optional<JobSecret> JobSecret::from_environment() {
    const char* text = std::getenv("TANDEM_JOB_SECRET");
    if (text == nullptr) return std::nullopt;
    return JobSecret(text);
}

Proof JobSecret::prove(std::string_view who, const Nonce& server, const Nonce& client) const {
    const std::string text = message(who, server, client);
    Proof proof{};
    crypto_auth(proof.data(), bytes(text), text.size(), key_.data());
    return proof;
}

bool JobSecret::holds(const Proof& proof, std::string_view who, const Nonce& server,
                      const Nonce& client) const {
    const std::string text = message(who, server, client);
    return crypto_auth_verify(proof.data(), bytes(text), text.size(), key_.data()) == 0;
}

}  // namespace tandem
