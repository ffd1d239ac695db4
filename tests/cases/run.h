// A case's folder and its programs: what a user types, and what comes of it.
#pragma once

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "tests/cases/models.h"
#include "tests/multiproc/app/program.h"
#include "tests/multiproc/engine/program.h"

namespace tandem::test {

// A fresh folder with the sums' prompts.jsonl (36 of them, "2+3=" with answer 5); commands are given its paths.
class Case : public testing::Test {
  protected:
    Case();
    std::string path(const std::string& name) const { return folder_ / name; }
    // tandem-train with the cases' run.toml: model.path "model", data.prompts "prompts.jsonl", 3 steps of 4 prompts by 4
    // samples, run.name "run", all inside the folder. `more`: --set values; flags: "--resume" and the like.
    std::vector<std::string> train(const std::vector<std::string>& more = {},
                                   const std::vector<std::string>& flags = {}) const;
    // Starts tandem-engine serve on `model` of the folder at a free port; url() says where.
    std::vector<std::string> serve(const std::string& model = "model",
                                   const std::vector<std::string>& more = {}) const;
    // The exit code and both outputs of a command that ends.
    struct Ended {
        int code = 0;
        std::string out, err;
        std::string text() const { return out + err; }
    };
    static Ended ended(const std::vector<std::string>& command,
                       const std::vector<std::string>& environment = {});

    Folder folder_;
};

struct HttpAnswer {
    int status = 0;
    std::string body;
    nlohmann::json json() const { return nlohmann::json::parse(body); }
};
// METHOD of a path at http://host:port, by a client of the test's own (curl's way of writing it, no keep-alive).
HttpAnswer ask(const std::string& url, const std::string& method, const std::string& path,
               const std::string& body = "", const std::vector<std::string>& headers = {});

}  // namespace tandem::test
