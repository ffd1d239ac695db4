// The command `inspect` of tandem-train: its options and its output. Starts no rank and connects to nothing;
// writes the files that `inspect schedule` is asked for.
#pragma once

#include <memory>
#include <string>

namespace CLI {
class App;
}

namespace tandem::inspect {

class Command {
  public:
    explicit Command(CLI::App& program);  // adds `inspect mesh|shard|redistribute|schedule`
    ~Command();
    bool parsed() const;
    // The answer to the command line, as a table or as JSON. Throws BadInput: nobody else passes arguments here,
    // so whatever the library refuses was asked for.
    std::string run() const;

  private:
    struct Options;
    std::unique_ptr<Options> options_;
};

}  // namespace tandem::inspect
