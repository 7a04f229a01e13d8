// oneTBB's part of the comparison of flows: nanoseconds per task, all samples as one line of JSON.
//
// `flow` next to this file builds and calls it: `flow THREADS ROUNDS`. A chain passes a number from node to node, and
// each node adds one. A fork and join has as many nodes that read one number, and one node that waits for all of them.
// Graphs are built once and run repeatedly.

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <oneapi/tbb/flow_graph.h>
#include <oneapi/tbb/global_control.h>

#include "samples.hpp"

namespace flow = oneapi::tbb::flow;
using Clock = std::chrono::steady_clock;

constexpr int nodes = 1000, runs = 100;

template <typename Policy>
class Chain {
    using Node = flow::function_node<std::uint64_t, std::uint64_t, Policy>;

public:
    Chain() {
        for (int i = 0; i < nodes; ++i) {
            nodes_.push_back(std::make_unique<Node>(graph_, flow::unlimited, [](std::uint64_t n) noexcept { return n + 1; }));
            if (i > 0) flow::make_edge(*nodes_[i - 1], *nodes_[i]);
        }
    }

    void run() {
        nodes_.front()->try_put(1);
        graph_.wait_for_all();
    }

private:
    flow::graph graph_;
    std::vector<std::unique_ptr<Node>> nodes_;
};

class ForkJoin {
    using Node = flow::function_node<std::uint64_t, flow::continue_msg>;

public:
    ForkJoin() : fork_(graph_), join_(graph_, [](const flow::continue_msg&) noexcept {}) {
        for (int i = 0; i < nodes; ++i) {
            auto body = [this, i](std::uint64_t n) noexcept {
                sums_[i] = n + i;
                return flow::continue_msg();
            };
            nodes_.push_back(std::make_unique<Node>(graph_, flow::unlimited, body));
            flow::make_edge(fork_, *nodes_[i]);
            flow::make_edge(*nodes_[i], join_);
        }
    }

    void run() {
        fork_.try_put(1);
        graph_.wait_for_all();
    }

private:
    flow::graph graph_;
    flow::broadcast_node<std::uint64_t> fork_;
    flow::continue_node<flow::continue_msg> join_;
    std::vector<std::unique_ptr<Node>> nodes_;
    std::uint64_t sums_[nodes] = {};
};

template <typename Graph>
static double nanoseconds(Graph& graph) {
    auto started = Clock::now();
    for (int i = 0; i < runs; ++i) graph.run();
    return std::chrono::duration<double, std::nano>(Clock::now() - started).count() / (double(runs) * nodes);
}

int main(int count, char** arguments) {
    if (count != 3) return std::fprintf(stderr, "flow: usage: flow THREADS ROUNDS\n"), 2;
    int threads = std::atoi(arguments[1]), rounds = std::atoi(arguments[2]);
    oneapi::tbb::global_control limit(oneapi::tbb::global_control::max_allowed_parallelism, threads);
    Chain<flow::queueing> chain;
    Chain<flow::queueing_lightweight> light;
    ForkJoin fork_join;
    Samples samples;
    for (int round = -1; round < rounds; ++round) {
        double times[] = {nanoseconds(chain), nanoseconds(light), nanoseconds(fork_join)};
        // The first round warms everything up.
        if (round < 0) continue;
        samples["chain"].push_back(times[0]);
        samples["chain, lightweight"].push_back(times[1]);
        samples["fork and join"].push_back(times[2]);
    }
    print(samples);
}
