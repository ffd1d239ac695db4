// What a pipeline is asked to be: the keys under [pipeline].
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trainer/pipeline/schedule.h"

namespace tandem::pipeline {

struct Options {
    std::string schedule = "1F1B";
    // What a rank does instead, from a file: compute actions, or with their sends and receives (csv.h).
    std::optional<Schedule> lists;
    int stages_per_rank = 0;   // 0: as layers_per_stage has it, or the schedule's usual number
    int layers_per_stage = 0;  // 0: as many as the stages have
    enum class Round { refuse, up, down } round = Round::refuse;  // stages that the ranks do not divide
    std::vector<std::string> split;   // modules that begin a stage, "model.layers.4"; empty: evenly
    int first_stage_less_layers = 1;  // that the embedding weighs
    int last_stage_less_layers = 1;   // that the head weighs
    int microbatches = 0;             // at least; 0: as many as ranks
};

}  // namespace tandem::pipeline
