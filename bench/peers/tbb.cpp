// oneTBB's part of the comparison with other runtimes: one question per call, all samples as one line of JSON.
//
// `run` next to this file builds and calls it: `tbb chain|one|hop SECONDS`. The nodes of its flow graphs compute
// max(x, 0) of 16 floats, as Anabranch's nodes do, each from the buffer of the node before it into its own buffer. A
// chain's node is measured as the difference of two lengths. Candidates are measured batch by batch in turn.

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <oneapi/tbb/flow_graph.h>
#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/task_arena.h>

#include "samples.hpp"

namespace flow = oneapi::tbb::flow;
using Clock = std::chrono::steady_clock;
using Values = std::array<float, 16>;

// A batch is shorter than a time slice, so that most batches are not interrupted on a busy machine.
constexpr double batch_seconds = 2e-4;
constexpr std::size_t least = 5, most = 501;
constexpr int lengths[2] = {1000, 100};

// Computes max(x, 0), opaque to the optimiser so that no node's work is removed.
static void compute(const Values& input, Values& output) {
    for (std::size_t i = 0; i < input.size(); ++i) output[i] = std::max(input[i], 0.0f);
    asm volatile("" : : "r"(output.data()) : "memory");
}

// A node that is a task, and a node that its predecessor may call without a task.
using Task = flow::continue_node<flow::continue_msg>;
using Lightweight = flow::continue_node<flow::continue_msg, flow::lightweight>;

template <typename Node>
class Chain {
public:
    explicit Chain(int length) : values_(length + 1) {
        for (int i = 0; i < length; ++i) {
            auto body = [this, i](const flow::continue_msg&) noexcept { compute(values_[i], values_[i + 1]); };
            nodes_.push_back(std::make_unique<Node>(graph_, body));
            if (i > 0) flow::make_edge(*nodes_[i - 1], *nodes_[i]);
        }
    }

    void run() {
        nodes_.front()->try_put(flow::continue_msg());
        graph_.wait_for_all();
    }

private:
    flow::graph graph_;
    std::vector<Values> values_;
    std::vector<std::unique_ptr<Node>> nodes_;
};

static double batch(const std::function<void()>& call, int count) {
    auto started = Clock::now();
    for (int i = 0; i < count; ++i) call();
    return std::chrono::duration<double>(Clock::now() - started).count();
}

// Returns the number of calls in a batch, after calls that warm everything up.
static int calibrate(const std::function<void()>& call) {
    batch(call, 2);
    int count = 1;
    while (batch(call, count) < batch_seconds) count *= 2;
    return count;
}

// Returns the seconds per call, measured batch by batch in turn.
static std::vector<std::vector<double>> in_turn(const std::vector<std::function<void()>>& calls, double seconds) {
    std::vector<int> counts;
    for (auto& call : calls) counts.push_back(calibrate(call));
    std::vector<std::vector<double>> samples(calls.size());
    double spent = 0;
    for (std::size_t round = 0; round < least || (round < most && spent < seconds); ++round) {
        for (std::size_t i = 0; i < calls.size(); ++i) {
            auto took = batch(calls[i], counts[i]);
            samples[i].push_back(took / counts[i]);
            spent += took;
        }
    }
    return samples;
}

template <typename Node>
static void chain_of(const std::string& name, double seconds, Samples& samples) {
    Chain<Node> longer(lengths[0]), shorter(lengths[1]);
    auto times = in_turn({[&] { longer.run(); }, [&] { shorter.run(); }}, seconds);
    for (std::size_t i = 0; i < times[0].size(); ++i) {
        samples[name + "/node"].push_back((times[0][i] - times[1][i]) / (lengths[0] - lengths[1]));
    }
    samples[name + "/chain1000"] = times[0];
    samples[name + "/chain100"] = times[1];
}

static Samples chain(double seconds) {
    Samples samples;
    chain_of<Task>("task", seconds / 2, samples);
    chain_of<Lightweight>("lightweight", seconds / 2, samples);
    return samples;
}

static Samples one(double seconds) {
    Chain<Task> task(1);
    Chain<Lightweight> light(1);
    auto times = in_turn({[&] { task.run(); }, [&] { light.run(); }}, seconds);
    return {{"task", times[0]}, {"lightweight", times[1]}};
}

// Two arenas of one worker each, whose tasks enqueue each other: the closest that TBB has to nodes bound to devices.
class Hops {
public:
    // Returns the seconds of a hop, and the share of hops after which another thread ran.
    std::pair<double, double> run(int count) {
        left_ = count;
        changes_ = 0;
        done_ = std::promise<void>();
        auto started = Clock::now();
        arenas_[0].enqueue([this] { step(0); });
        done_.get_future().wait();
        auto seconds = std::chrono::duration<double>(Clock::now() - started).count();
        return {seconds / count, double(changes_) / count};
    }

private:
    void step(int side) {
        auto here = std::this_thread::get_id();
        changes_ += here != last_;
        last_ = here;
        compute(values_[side], values_[1 - side]);
        if (--left_ == 0) return done_.set_value();
        arenas_[1 - side].enqueue([this, side] { step(1 - side); });
    }

    oneapi::tbb::task_arena arenas_[2] = {{1, 0}, {1, 0}};
    Values values_[2] = {};
    int left_ = 0;
    int changes_ = 0;
    std::thread::id last_;
    std::promise<void> done_;
};

static Samples hop(double seconds) {
    Hops hops;
    hops.run(100);
    Samples samples;
    for (double spent = 0; spent < seconds || samples["arenas"].size() < least;) {
        auto [time, changed] = hops.run(200);
        samples["arenas"].push_back(time);
        samples["thread changes a hop"].push_back(changed);
        spent += time * 200;
    }
    return samples;
}

int main(int count, char** arguments) {
    std::string question = count == 3 ? arguments[1] : "";
    double seconds = count == 3 ? std::atof(arguments[2]) : 0;
    // Hops need two workers besides the waiting thread; all other questions use the available cores.
    int threads = question == "hop" ? 3 : std::max(1, oneapi::tbb::this_task_arena::max_concurrency());
    oneapi::tbb::global_control limit(oneapi::tbb::global_control::max_allowed_parallelism, threads);
    if (question == "chain") print(chain(seconds));
    else if (question == "one") print(one(seconds));
    else if (question == "hop") print(hop(seconds));
    else return std::fprintf(stderr, "tbb: usage: tbb chain|one|hop SECONDS\n"), 2;
}
